// `npm run lock` makes package-lock.json of package.json: without registries (.npmrc) and without whom to give money.

import { readFileSync, writeFileSync } from "node:fs";

const lock = JSON.parse(readFileSync("package-lock.json", "utf8"));
for (const described of Object.values(lock.packages)) delete described.funding;
writeFileSync("package-lock.json", JSON.stringify(lock, null, 2) + "\n");
