// Passkeys: the browser's answer goes into a hidden field of a form that is then sent as any other.

async function question(form) {
  const answer = await fetch(form.dataset.passkeyAsk, {
    method: "POST",
    headers: { "x-csrftoken": form.elements.csrfmiddlewaretoken.value },
    redirect: "manual",
  });
  if (answer.type === "opaqueredirect") {
    // The session must be confirmed first.
    location.assign(`/confirm?next=${encodeURIComponent(location.pathname)}`);
    return null;
  }
  if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
  return (await answer.json()).publicKey;
}

async function send(button, work) {
  const form = button.form;
  const told = form.querySelector("[data-passkey-told]");
  if (!form.reportValidity()) return;
  button.disabled = true;
  try {
    const asked = await question(form);
    if (!asked) return;
    const made = await work(asked);
    form.elements.passkey.value = JSON.stringify(made.toJSON());
    form.requestSubmit();
  } catch (error) {
    told.textContent = error.name === "NotAllowedError"
      ? "Nothing was chosen, or it took too long. Try again."
      : "This browser or address cannot use passkeys: they need HTTPS, or localhost.";
  } finally {
    button.disabled = false;
  }
}

document.addEventListener("click", (event) => {
  const make = event.target.closest("[data-passkey-make]");
  if (make) {
    send(make, (asked) => navigator.credentials.create({
      publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(asked),
    }));
  }
  const use = event.target.closest("[data-passkey-use]");
  if (use) {
    send(use, (asked) => navigator.credentials.get({
      publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(asked),
    }));
  }
});
