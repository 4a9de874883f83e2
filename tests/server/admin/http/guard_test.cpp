// Access checks: names and addresses, origins, tokens, and read-only listeners.
#include "server/admin/http/guard.hpp"

#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::admin::test {
namespace {

constexpr const char* secret = "0123456789abcdef0123456789abcdef";

struct TokenFile {
    explicit TokenFile(const std::string& text, mode_t mode = 0600)
        : path(folder.write("token", text, mode)) {}

    const gpunbd::test::TemporaryFolder folder;
    const std::string path;
};

unsigned status_or_0(const std::optional<Response>& refused) {
    return refused ? refused->status : 0;
}

Request asking(Method method, const char* host) {
    return {.method = method, .target = "/", .host = host};
}

TEST_CASE("guard: names of a TCP endpoint") {
    const EndpointPolicy policy{
        .tcp = true, .authority = "10.0.0.5:9809", .names = {"GPU.example"}};
    const std::pair<const char*, unsigned> rows[] = {
        {"10.0.0.5:9809", 0},         {"localhost:9809", 0},   {"LOCALHOST:9809", 0},
        {"127.0.0.1:9809", 0},        {"[::1]:9809", 0},       {"gpu.EXAMPLE:9809", 0},
        {"192.168.7.7:9809", 0},  // the address that the client connected to
        {"localhost", 421},           {"localhost:9808", 421}, {"10.0.0.5", 421},
        {"evil.example:9809", 421},   {"gpu.example", 421},    {"", 421},
        {"localhost:9809.evil", 421}, {"[::1]", 421},          {"gpu.example.:9809", 421},
    };
    for (const auto& [host, status] : rows) {
        CAPTURE(host);
        for (const Method method : {Method::get, Method::head, Method::post}) {
            const auto refused =
                check_site(asking(method, host), policy, "192.168.7.7:9809", false);
            CHECK(status_or_0(refused) == status);
        }
    }
    const EndpointPolicy standard{.tcp = true, .authority = "127.0.0.1:80"};
    CHECK(!check_site(asking(Method::get, "localhost"), standard, "", false));
    const EndpointPolicy secure{.tcp = true, .tls = true, .authority = "127.0.0.1:443"};
    CHECK(!check_site(asking(Method::get, "localhost"), secure, "", false));
}

TEST_CASE("guard: a request has exactly one Host on every listener") {
    Request request;
    CHECK(status_or_0(check_site(request, EndpointPolicy{}, "", false)) == 400);
    request.host = "whatever";
    CHECK(!check_site(request, EndpointPolicy{}, "", false));
}

TEST_CASE("guard: requests from other origins") {
    const EndpointPolicy tcp{.tcp = true, .authority = "127.0.0.1:9809"};
    const EndpointPolicy tls{.tcp = true, .tls = true, .authority = "127.0.0.1:9809"};
    const EndpointPolicy local{};
    struct Row {
        const EndpointPolicy& policy;
        const char* host;
        const char* origin;
        unsigned status;
    };
    const Row rows[] = {
        {tcp, "localhost:9809", "http://localhost:9809", 0},
        {tcp, "localhost:9809", "HTTP://LOCALHOST:9809", 0},
        {tcp, "localhost:9809", "https://localhost:9809", 403},
        {tls, "localhost:9809", "https://localhost:9809", 0},
        {tls, "localhost:9809", "http://localhost:9809", 403},
        {tcp, "localhost:9809", "http://localhost", 403},
        {tcp, "localhost:9809", "http://localhost:8080", 403},
        {tcp, "localhost:9809", "http://127.0.0.1:9809", 403},
        {tcp, "localhost:9809", "http://evil.example", 403},
        {tcp, "localhost:9809", "null", 403},
        {tcp, "localhost:9809", "", 403},
        {tcp, "localhost:9809", "file://localhost:9809", 403},
        {local, "gpu.example", "https://gpu.example", 0},  // through a proxy
        {local, "gpu.example", "https://evil.example", 403},
    };
    for (const Row& row : rows) {
        CAPTURE(row.origin);
        Request request = asking(Method::get, row.host);
        request.origin = row.origin;
        CHECK(status_or_0(check_site(request, row.policy, "", false)) == row.status);
    }
}

TEST_CASE("guard: requests from pages of other sites are refused") {
    for (const char* site : {"cross-site", "same-site", "Cross-Site", "nonsense", ""}) {
        CAPTURE(site);
        for (const Method method : {Method::get, Method::head, Method::post}) {
            Request request = asking(method, "h");
            request.fetch_site = site;
            CHECK(status_or_0(check_site(request, EndpointPolicy{}, "", false)) == 403);
            // A link from another site to the page works.
            CHECK(status_or_0(check_site(request, EndpointPolicy{}, "", true)) ==
                  (method == Method::post ? 403 : 0));
        }
    }
    for (const char* site : {"same-origin", "none"}) {
        for (const Method method : {Method::get, Method::post}) {
            Request request = asking(method, "h");
            request.fetch_site = site;
            CHECK(!check_site(request, EndpointPolicy{}, "", false));
        }
    }
}

TEST_CASE("guard: requests without the right token are refused") {
    const TokenFile file(std::string(secret) + "\n");
    const EndpointPolicy policy{
        .tcp = true, .authority = "127.0.0.1:9809", .token = Token::load(file.path)};
    const std::pair<std::string, unsigned> rows[] = {
        {std::string("Bearer ") + secret, 0},
        {std::string("bearer ") + secret, 0},
        {std::string("Bearer ") + secret + "0", 401},
        {std::string("Bearer ") + secret + "\n", 401},
        {"Bearer 0123456789abcdef0123456789abcdee", 401},
        {"Bearer ", 401},
        {"Bearer", 401},
        {"", 401},
        {secret, 401},
        {std::string("Basic ") + secret, 401},
    };
    for (const Method method : {Method::get, Method::post}) {
        for (const auto& [authorization, status] : rows) {
            CAPTURE(authorization);
            Request request = asking(method, "localhost:9809");
            request.authorization = authorization;
            const auto refused = check_access(request, policy);
            CHECK(status_or_0(refused) == status);
            if (refused) CHECK(refused->headers.at(0).name == "WWW-Authenticate");
        }
        CHECK(status_or_0(check_access(asking(method, "localhost:9809"), policy)) == 401);
    }
}

TEST_CASE("guard: an unprotected TCP endpoint is read-only") {
    const EndpointPolicy open{.tcp = true, .authority = "127.0.0.1:9809"};
    const EndpointPolicy tls{.tcp = true, .tls = true, .authority = "127.0.0.1:9809"};
    CHECK(!check_access(asking(Method::get, "h"), open));
    const auto refused = check_access(asking(Method::post, "h"), open);
    REQUIRE(refused);
    CHECK(refused->status == 403);
    CHECK(contains(refused->body, "admin.tcp.token"));
    CHECK(!check_access(asking(Method::post, "h"), tls));
    CHECK(!check_access(asking(Method::post, "h"), EndpointPolicy{}));
}

TEST_CASE("guard: the socket for kept contents serves no other path") {
    const EndpointPolicy policy{.kept_only = true};
    for (const Method method : {Method::get, Method::post}) {
        Request request = asking(method, "h");
        for (const char* target : {"/api/v1/kept", "/api/v1/kept/drop"}) {
            request.target = target;
            CHECK(!check_access(request, policy));
        }
        for (const char* target : {"/", "/api/v1/status", "/api/v1/rates", "/metrics", ""}) {
            CAPTURE(target);
            request.target = target;
            CHECK(status_or_0(check_access(request, policy)) == 404);
        }
    }
}

TEST_CASE("guard: invalid token files are refused") {
    const auto wrong = [](const std::string& path) {
        return gpunbd::test::error_of([&] { return Token::load(path); });
    };
    CHECK(contains(wrong("/nowhere"), "cannot be read"));
    for (const char* text : {"", "\n", "short", "0123456789abcdef 0123456789abcdef",
                             "0123456789abcdef0123456789abcdef\nanother line\n"}) {
        CAPTURE(text);
        const TokenFile file(text);
        CHECK(contains(wrong(file.path), "openssl rand"));
    }
    const TokenFile readable(secret, 0644);
    CHECK(contains(wrong(readable.path), "chmod o="));
    const TokenFile windows(std::string(secret) + "\r\n", 0640);
    CHECK(Token::load(windows.path).matches(secret));
}

}  // namespace
}  // namespace gpunbd::server::admin::test
