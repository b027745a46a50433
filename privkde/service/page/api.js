// The interactive API page: Swagger UI on the service's own OpenAPI document, with nothing from anywhere else.

window.SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#api",
  deepLinking: true,
  tryItOutEnabled: true,
  validatorUrl: "none", // the default sends the document to another server
});
