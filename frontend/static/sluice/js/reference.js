// The API's description, drawn by Swagger UI; what is tried goes out with this session.

const place = document.getElementById("reference");
const SAFE = new Set(["GET", "HEAD"]);
const dark = matchMedia("(prefers-color-scheme: dark)");

// Swagger UI has a dark theme too, which a class of the root switches on.
function followTheme() {
  document.documentElement.classList.toggle("dark-mode", dark.matches);
}

function withToken(request) {
  const own = new URL(request.url, location.href).origin === location.origin;
  if (own && !SAFE.has((request.method ?? "GET").toUpperCase())) {
    request.headers["X-CSRFToken"] = place.dataset.token;
  }
  return request;
}

// By itself Swagger UI puts a link into each button that opens an operation, and labels no body.
function accessible({ React }) {
  return {
    components: { DeepLink: ({ text }) => React.createElement("span", null, text) },
    wrapComponents: { TextArea: (Plain) => (given) => React.createElement(Plain, { "aria-label": "Body", ...given }) },
  };
}

followTheme();
dark.addEventListener("change", followTheme);
if (globalThis.SwaggerUIBundle) {
  globalThis.SwaggerUIBundle({
    domNode: place,
    url: place.dataset.schema,
    presets: [globalThis.SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
    docExpansion: "none",
    deepLinking: true,
    plugins: [accessible],
    filter: true,
    tryItOutEnabled: true,
    persistAuthorization: false,
    validatorUrl: null,
    requestInterceptor: withToken,
  });
} else {
  place.textContent = "The page's script did not load; the description itself is at the link above.";
}
