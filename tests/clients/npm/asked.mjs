// What all tests ask, and where: ROPETEAM_URL is a server with the embedded default model.
export const url = process.env.ROPETEAM_URL;
export const model = process.env.ROPETEAM_MODEL;
export const prompt = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10,";
export const next = " 11, 12, 13,";
export const question = "What is the capital of Japan? Answer in one sentence.";
export const answer = "The capital of Japan is Tokyo.";
export const weather = {
  type: "object",
  properties: { unit: { enum: ["C", "F"] } },
  required: ["unit"],
  additionalProperties: false,
};
