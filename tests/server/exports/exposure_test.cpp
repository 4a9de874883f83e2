// Finds exports that any TCP client may open, and answers which exports a client may open.
#include "server/exports/access_list.hpp"

#include <doctest/doctest.h>

#include <stdexcept>

#include "config/yaml_file.hpp"
#include "tests/config/text.hpp"

namespace gpunbd::server::test {
namespace {

config::Options options_of(const std::string& text) {
    config::Loaded loaded = config::load_text(text, "f");
    REQUIRE(config::joined(loaded.problems) == "");
    return std::move(loaded.options);
}

TEST_CASE("exposure: an export is open to all if a TCP client of any address may open it") {
    struct Row {
        const char* exports;
        const char* open;  // empty: none
    };
    const Row rows[] = {
        {"{name: a}", "export 'a'"},
        {"{name: a, read_only: true}", "export 'a'"},
        {"{name: a}, {name: b}, {name: c}", "export 'a' and 2 more"},
        {"{name: a, access: [{network: 10.0.0.0/8}]}", ""},
        {"{name: a, access: [{network: 10.0.0.0/8}]}, {name: b}", "export 'b'"},
        {"{name: a, access: [{network: 0.0.0.0/0}]}", "export 'a'"},
        {"{name: a, access: [{uid: 0}, {network: '::/0', mode: read-only}]}", "export 'a'"},
        {"{name: a, access: [{network: 0.0.0.0/0, tls_name: x}]}", ""},
        {"{name: a, access: [{network: '::/0', psk_user: x}]}", ""},
        {"{name: a, access: [{tls_name: x}, {psk_user: y}]}", ""},
        {"{name: a, tls: required}, {name: b, tls: required}", ""},
        // No TCP client matches these rules.
        {"{name: a, access: [{uid: 0}, {gid: 0}, {cid: 3}]}", ""},
    };
    for (const Row& row : rows) {
        CAPTURE(row.exports);
        config::Options options = options_of(std::string("exports: [") + row.exports + "]");
        CHECK(open_to_all(options).value_or("") == row.open);
        options.tls.mode = config::TlsMode::optional;  // clients without TLS are not refused
        CHECK(open_to_all(options).value_or("") == row.open);
        options.tls.mode = config::TlsMode::required;
        CHECK_FALSE(open_to_all(options).has_value());
    }
}

TEST_CASE("exposure: TLS without client verification is reported") {
    config::Options options = options_of("exports: [{name: a, access: [{uid: 0}]}, {name: b}]");
    options.tls = {config::TlsMode::required, "/f", false, ""};
    CHECK(unproved_in_tls(options).value_or("").find("open export 'b'") != std::string::npos);
    options.exports.erase_if([](const auto& each) { return each.name == "b"; });
    CHECK_FALSE(unproved_in_tls(options).has_value());
    options.exports.front().access.clear();
    CHECK(unproved_in_tls(options).has_value());
    options.tls.verify_clients = true;
    CHECK_FALSE(unproved_in_tls(options).has_value());
}

TEST_CASE("exposure: certificates and keys without TLS are reported") {
    config::Options options = options_of("exports: [{name: a}]");
    CHECK_FALSE(unused_credentials(options).has_value());
    options.tls = {config::TlsMode::off, "/f", true, ""};
    CHECK(unused_credentials(options).value_or("").starts_with("certificates have no effect"));
    options.admin.tcp.tls = true;  // uses them
    CHECK_FALSE(unused_credentials(options).has_value());
    options.tls.psk = "/keys";
    CHECK(unused_credentials(options).value_or("").starts_with("psk has no effect"));
    options.admin.tcp.tls = false;
    CHECK(unused_credentials(options).value_or("").starts_with("certificates and psk have"));
    options.tls.mode = config::TlsMode::optional;
    CHECK_FALSE(unused_credentials(options).has_value());
}

std::string answers(const config::Options& options, const config::AccessQuery& query) {
    std::string out;
    for (const ExportAccess& each : access_report(options, peer_of(query))) {
        out += each.text() + "\n";
    }
    return out;
}

TEST_CASE("question: reports the exports of a client, with the rule and its line") {
    const config::Options options = options_of(R"(exports:
  - name: a
    access:
      - {network: 10.1.0.0/16, mode: read-only}
      - network: 10.0.0.0/8
        tls_name: Client.example
      - gid: 7
      - {psk_user: alice, mode: read-only}
  - {name: b, read_only: true, access: [{cid: 3}]}
  - {name: c, read_only: true}
)");
    const std::string no_a = "export 'a': denied: none of its 4 rules matches\n";
    const std::string no_b = "export 'b': denied: the one rule of its access list does not match\n";
    const std::string rest =
        no_b + "export 'c': read-only: it has no access list; the export is read_only\n";
    CHECK(answers(options, {.client = "10.1.2.3"}) ==
          "export 'a': read-only: rule 1 matches: network 10.1.0.0/16 (line 4)\n" + rest);
    CHECK(answers(options, {.client = "::ffff:10.1.2.3"}) ==
          answers(options, {.client = "10.1.2.3"}));
    CHECK(answers(options, {.client = "10.2.2.3"}) == no_a + rest);
    CHECK(answers(options, {.client = "10.2.2.3", .tls_name = "CLIENT.EXAMPLE"}) ==
          "export 'a': read-write: rule 2 matches: network 10.0.0.0/8, tls_name 'client.example' "
          "(line 5)\n" +
              rest);
    CHECK(answers(options, {.client = "::1", .psk_user = "alice"}) ==
          "export 'a': read-only: rule 4 matches: psk_user 'alice' (line 8)\n" + rest);
    for (const char* who : {"unix:uid=1,gid=7", "unix:gid=7,uid=1", "unix:uid=1,gid=8,gid=7"}) {
        CAPTURE(who);
        CHECK(answers(options, {.client = who}) ==
              "export 'a': read-write: rule 3 matches: gid '7' (line 7)\n" + rest);
    }
    CHECK(answers(options, {.client = "unix:uid=7"}) == no_a + rest);
    CHECK(answers(options, {.client = "vsock:3"}) ==
          no_a +
              "export 'b': read-only: rule 1 matches: cid 3 (line 9); the export is read_only\n"
              "export 'c': read-only: it has no access list; the export is read_only\n");
}

TEST_CASE("question: an invalid client is refused with an explanation") {
    for (const char* who :
         {"", "10.1.2", "10.1.2.3/8", "localhost", "unix:", "unix:gid=7", "unix:uid",
          "unix:uid=1,x=2", "unix:uid=1,uid=2", "fe80::1%", "tcp:10.1.2.3", "vsock:", "vsock:x",
          "vsock:4294967296", "unix:uid=no such user"}) {
        CAPTURE(who);
        CHECK_THROWS_AS(peer_of({.client = who}), std::runtime_error);
    }
    CHECK_THROWS_AS(peer_of({.client = "::1", .tls_name = ""}), std::runtime_error);
    CHECK_THROWS_AS(peer_of({.client = "::1", .psk_user = "a:b"}), std::runtime_error);
    CHECK_THROWS_WITH(peer_of({.client = "10.1.2"}),
                      "--who: '10.1.2' is not a client; write for example 10.1.2.3, ::1, "
                      "unix:uid=1000,gid=100, or vsock:3");
}

}  // namespace
}  // namespace gpunbd::server::test
