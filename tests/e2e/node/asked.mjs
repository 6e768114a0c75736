// What every client asks: the same question, the same tool, the same shape of an answer.

import { z } from "zod";

export const QUESTION = [{ role: "user", content: "What is the weather in Zürich?" }];
export const Weather = z.object({ city: z.string(), days: z.number().int() });
export const NAME = "get_weather";
export const DESCRIPTION = "The weather of a place.";
export const SCHEMA = {
  type: "object",
  properties: { city: { type: "string" }, days: { type: "integer" } },
  required: ["city", "days"],
  additionalProperties: false,
};
