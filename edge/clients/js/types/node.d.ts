/**
 * What works in Node only.
 *
 *     import { fileStore } from "tokentrail-client/node";
 *
 * Before: `stores/file`.
 */
export { fileStore } from "./stores/file.js";
