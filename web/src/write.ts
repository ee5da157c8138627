// The few things that can be done on the page: confirmed by a person, and told to the daemon with the token of this session.
import type { Session } from "./api.gen";
import { answered, ask } from "./ask";

export async function write<Answer>(path: string, body: unknown): Promise<Answer> {
  const { csrf } = await ask<Session>("/v1/session");
  const headers = { "Content-Type": "application/json", "X-Subluminal-CSRF": csrf };
  return answered<Answer>(() => fetch(path, { method: "POST", cache: "no-store", headers, body: JSON.stringify(body) }));
}
