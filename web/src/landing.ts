// A link on a foreign page comes without our cookie. Asked once more by ourselves, the browser sends it: then the page is
// loaded again, at the same address. Otherwise there is no session, and the sentences of the landing page are shown.
async function enter(): Promise<void> {
  try {
    const answer = await fetch("/v1/session", { cache: "no-store" });
    if (answer.ok) {
      if (location.pathname.startsWith("/link/")) location.replace("/");
      else location.reload();
      return;
    }
  } catch {
    // Nobody is there to ask: the same sentences help.
  }
  document.querySelector("main")!.hidden = false;
}
void enter();
