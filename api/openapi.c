/* SPDX-License-Identifier: Apache-2.0 */
/* Answers GET openapi.json: generates the description of the API in OpenAPI 3.1 from the table of
 * routes. */
#include "api/private.h"

#include <ctype.h>
#include <string.h>

/* Lists the paths outside /api/v1/. */
static const struct {
    const char *path, *type, *help;
} others[] = {
    {"/metrics", "text/plain", "Metrics for Prometheus."},
    {"/healthz", "text/plain",
     "200 if the supervisor and the main loops of its workers turn, else 503."},
    {"/readyz", "text/plain", "200 if every worker is ready, else 503 and why not."},
    {"/version", "application/json", "The version of the program."},
};

/* --- parts of an operation -------------------------------------------------------------------- */

/* Returns the name of the parameter for which the "*" at path[at] stands: "key" after keys/ and
 * lanes/, otherwise "id". */
static const char *name_of(const char *path, size_t at) {
    return !strncmp(path, "keys/", at) || !strncmp(path, "lanes/", at) ? "key" : "id";
}

static json_t *path_text(const struct api_route *r) {
    struct lw_buf b = {0};
    lw_buf_addf(&b, r->path[0] ? "/api/v1/" : "/api/v1");
    for (size_t i = 0; r->path[i]; i++)
        if (r->path[i] == '*')
            lw_buf_addf(&b, "{%s}", name_of(r->path, i));
        else
            lw_buf_add(&b, &r->path[i], 1);
    json_t *v = json_stringn(b.p, b.n);
    lw_buf_free(&b);
    return v;
}

/* Builds an operation id from the method and the path, such as "get_lanes_key". */
static json_t *operation_id(const struct api_route *r, const char *path) {
    struct lw_buf b = {0};
    lw_buf_addf(&b, r->post ? "post" : "get");
    for (const char *p = path + strlen("/api/v1"); *p; p++)
        if (isalnum((unsigned char)*p) || *p == '_')
            lw_buf_add(&b, p, 1);
        else if (*p == '/' || *p == '.')
            lw_buf_add(&b, "_", 1);
    json_t *v = json_stringn(b.p, b.n);
    lw_buf_free(&b);
    return v;
}

static json_t *parameters(const struct api_route *r) {
    json_t *list = json_array();
    const char *star = strchr(r->path, '*');
    if (star)
        json_array_append_new(list, json_pack("{s:s,s:s,s:b,s:{s:s}}", "name",
                                              name_of(r->path, (size_t)(star - r->path)), "in",
                                              "path", "required", 1, "schema", "type", "string"));
    for (size_t i = 0; i < api_n_params; i++)
        if (r->params & api_params[i].bit)
            json_array_append_new(list, json_pack("{s:s,s:s,s:s,s:o}", "name", api_params[i].name,
                                                  "in", "query", "description", api_params[i].help,
                                                  "schema", api_schema(api_params[i].type)));
    return list;
}

static json_t *content(const char *type, json_t *schema) {
    return json_pack("{s:{s:o}}", type, "schema", schema);
}

static json_t *responses(const struct api_route *r) {
    json_t *v = json_object();
    const char *type = r->type ? r->type : "application/json";
    if (r->answer)
        json_object_set_new(v, "200",
                            json_pack("{s:s,s:o}", "description", "the answer", "content",
                                      content(type, api_schema(r->answer))));
    if (r->export)
        json_object_set_new(json_object_get(v, "200"), "headers",
                            json_pack("{s:{s:s,s:{s:s}}}", "Latchwork-Next", "description",
                                      "cursor of the next part; missing at the end", "schema",
                                      "type", "string"));
    if (r->job)
        json_object_set_new(v, "202",
                            json_pack("{s:s,s:o}", "description", "a job does the work", "content",
                                      content("application/json", api_schema("{job:s}"))));
    json_object_set_new(
        v, "default",
        json_pack(
            "{s:s,s:o}", "description",
            "400 malformed request, 401 or 403 no right, 404 not found, 409 a job is under way, "
            "413 too "
            "large, 421 the Host is not served, 503 Redis does not answer in time",
            "content", content("application/json", api_schema("Error"))));
    return v;
}

static json_t *operation(const struct api_route *r, const char *path) {
    json_t *v = json_pack("{s:o,s:s,s:o,s:o}", "operationId", operation_id(r, path), "summary",
                          r->help, "parameters", parameters(r), "responses", responses(r));
    if (r->post)
        json_object_set_new(
            v, "requestBody",
            json_pack("{s:o}", "content", content("application/json", api_body_schema(r))));
    json_object_set_new(v, "security",
                        r->post ? json_pack("[{s:[]}]", "token")
                                : json_pack("[{},{s:[]}]", "token"));
    return v;
}

/* --- the whole -------------------------------------------------------------------------------- */

static json_t *paths(void) {
    json_t *all = json_object();
    for (size_t i = 0; i < api_n_routes; i++) {
        const struct api_route *r = &api_routes[i];
        json_t *path = path_text(r), *item = json_object_get(all, json_string_value(path));
        if (!item) json_object_set_new(all, json_string_value(path), item = json_object());
        json_object_set_new(item, r->post ? "post" : "get", operation(r, json_string_value(path)));
        json_decref(path);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        json_object_set_new(all, others[i].path,
                            json_pack("{s:{s:s,s:{s:{s:s,s:o}}}}", "get", "summary", others[i].help,
                                      "responses", "default", "description", "the answer",
                                      "content", content(others[i].type, json_object())));
    return all;
}

static json_t *shapes(void) {
    json_t *all = json_object();
    for (size_t i = 0; i < api_n_shapes; i++)
        json_object_set_new(all, api_shapes[i].name, api_schema(api_shapes[i].text));
    return all;
}

int api_openapi(struct api_call *k) {
    api_put(k,
            json_pack("{s:s,s:{s:s,s:s,s:s,s:{s:s,s:s}},s:o,s:{s:o,s:{s:{s:s,s:s,s:s}}}}",
                      "openapi", "3.1.0", "info", "title", "Latchwork", "version", LW_VERSION,
                      "description", "What the commands queue, dead, lock and ledger show and do.",
                      "license", "name", "Apache-2.0", "identifier", "Apache-2.0", "paths", paths(),
                      "components", "schemas", shapes(), "securitySchemes", "token", "type", "http",
                      "scheme", "bearer", "description",
                      "A read or a write token of the configuration; reading needs one only if "
                      "there are read tokens."));
    return 0;
}
