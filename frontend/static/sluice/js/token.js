// A token of the signed-in user for one project, kept in memory only.
const SPARE_MS = 30_000;
let token = null;

/** That of the project chosen in a form with `data-token-url`; a new one where the last is too old. */
export async function freshToken(form) {
  const project = form.project.value;
  if (token && token.project === project && token.until > Date.now()) return token.text;
  const asked = new FormData();
  for (const name of ["project", "csrfmiddlewaretoken"]) asked.set(name, form[name].value);
  const answer = await fetch(form.dataset.tokenUrl, { method: "POST", body: asked });
  if (!answer.ok) throw new Error("Your session has ended or your role changed. Reload the page.");
  const made = await answer.json();
  token = { text: made.token, project, until: Date.now() + made.lifetime_s * 1000 - SPARE_MS };
  return token.text;
}
