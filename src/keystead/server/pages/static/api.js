// Starts Swagger UI on the OpenAPI document of this server, light or dark as the rest of the pages.
const dark = matchMedia("(prefers-color-scheme: dark)");
const chosen = document.documentElement.dataset.theme;
const follow = () => document.documentElement.classList.toggle("dark-mode", chosen ? chosen === "dark" : dark.matches);
dark.addEventListener("change", follow);
follow();
window.addEventListener("load", () => {
  SwaggerUIBundle({
    url: "/openapi.json",
    dom_id: "#api",
    deepLinking: true,
    validatorUrl: null,
    docExpansion: "list",
    defaultModelsExpandDepth: 0,
  });
});
