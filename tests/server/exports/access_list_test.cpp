// Matches access rules against clients of every kind, and tests the order of rules. Finds exports
// that any TCP client may open, and answers which exports a client may open.
#include "server/exports/access_list.hpp"

#include "config/rules.hpp"
#include "config/yaml_file.hpp"
#include "tests/config/text.hpp"
#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

using config::AccessMode;

Peer tcp(const std::string& address) {
    Peer peer;
    peer.kind = Peer::Kind::tcp;
    peer.address = address;
    return peer;
}

Peer local(uid_t uid, gid_t gid, std::vector<gid_t> groups = {}) {
    Peer peer;
    peer.kind = Peer::Kind::unix_socket;
    peer.uid = uid;
    peer.gid = gid;
    peer.groups = std::move(groups);
    return peer;
}

Peer virtual_machine(std::uint32_t cid) {
    Peer peer;
    peer.kind = Peer::Kind::vsock;
    peer.cid = cid;
    return peer;
}

Peer with_tls(Peer peer, std::vector<std::string> names, std::string psk_user = {}) {
    peer.tls = TlsIdentity{.names = std::move(names), .psk_user = std::move(psk_user)};
    return peer;
}

config::AccessRule network(const char* text) {
    config::AccessRule rule;
    rule.network = std::get<config::Network>(config::rules::network(text));
    return rule;
}

config::AccessRule read_only(config::AccessRule rule) {
    rule.mode = AccessMode::read_only;
    return rule;
}

bool matches(const config::AccessRule& rule, const Peer& peer) {
    return AccessRule(rule).matches(PeerIdentity(peer));
}

Verdict decide(const std::vector<config::AccessRule>& rules, const Peer& peer) {
    return AccessList(rules).decide(PeerIdentity(peer));
}

TEST_CASE("access: a network matches TCP clients of its family; mapped addresses are IPv4") {
    const std::tuple<const char*, Peer, bool> rows[] = {
        {"10.0.0.0/8", tcp("10.200.0.1"), true},
        {"10.0.0.0/8", tcp("::ffff:10.200.0.1"), true},
        {"10.0.0.0/8", tcp("::ffff:11.0.0.1"), false},
        {"0.0.0.0/0", tcp("::1"), false},
        {"::/0", tcp("::1"), true},
        {"::/0", tcp("10.0.0.1"), false},
        {"::/0", tcp("::ffff:10.0.0.1"), false},
        {"::/64", tcp("::ffff:10.0.0.1"), false},
        // Text that is no address of that family does not match even the widest network.
        {"::/0", tcp("fe80::1%eth0"), false},
        {"0.0.0.0/0", tcp(""), false},
        {"0.0.0.0/0", tcp("10.0.0.1 "), false},
        {"0.0.0.0/0", local(0, 0), false},
        {"::/0", local(0, 0), false},
        {"0.0.0.0/0", virtual_machine(0), false},
        {"::/0", Peer{}, false},
        {"0.0.0.0/0", Peer{}, false},
    };
    for (const auto& [text, peer, expected] : rows) {
        CAPTURE(text);
        CAPTURE(peer.address);
        CHECK(matches(network(text), peer) == expected);
    }
    // The address of a peer of another kind is ignored.
    Peer odd = tcp("10.0.0.1");
    odd.kind = Peer::Kind::unknown;
    CHECK_FALSE(matches(network("0.0.0.0/0"), odd));
}

TEST_CASE("access: users and groups match Unix socket peers, including supplementary groups") {
    config::AccessRule user;
    user.uid = config::Account{1000, "1000"};
    CHECK(matches(user, local(1000, 5)));
    CHECK_FALSE(matches(user, local(0, 1000)));
    config::AccessRule root;
    root.uid = config::Account{0, "root"};
    // Peers of other kinds have the uid 0 by default.
    CHECK_FALSE(matches(root, tcp("127.0.0.1")));
    CHECK_FALSE(matches(root, virtual_machine(2)));
    CHECK_FALSE(matches(root, Peer{}));
    config::AccessRule group;
    group.gid = config::Account{6, "disk"};
    CHECK(matches(group, local(1, 6)));
    CHECK(matches(group, local(1, 5, {7, 6})));
    CHECK_FALSE(matches(group, local(6, 5, {7})));
    group.gid = config::Account{0, "root"};
    CHECK_FALSE(matches(group, tcp("127.0.0.1")));
    CHECK_FALSE(matches(group, Peer{}));
    group.uid = config::Account{1, "1"};
    CHECK(matches(group, local(1, 0)));
    CHECK_FALSE(matches(group, local(2, 0)));
    CHECK_FALSE(matches(group, local(1, 1)));
}

TEST_CASE("access: a cid matches vsock peers") {
    config::AccessRule machine;
    machine.cid = 0;
    CHECK(matches(machine, virtual_machine(0)));
    CHECK_FALSE(matches(machine, virtual_machine(1)));
    CHECK_FALSE(matches(machine, local(0, 0)));
    CHECK_FALSE(matches(machine, Peer{}));
}

TEST_CASE("access: TLS names and PSK users match in full, and only clients in TLS") {
    config::AccessRule name;
    name.tls_name = "Client.Example.com";
    CHECK(matches(name, with_tls(tcp("10.0.0.1"), {"other", "client.EXAMPLE.com"})));
    CHECK(matches(name, with_tls(local(1, 1), {"client.example.com"})));
    for (const char* other : {"client.example.co", "client.example.com.", "xclient.example.com", "",
                              "*.example.com", "client-example.com"}) {
        CAPTURE(other);
        CHECK_FALSE(matches(name, with_tls(tcp("10.0.0.1"), {other})));
    }
    CHECK_FALSE(matches(name, with_tls(tcp("10.0.0.1"), {})));
    CHECK_FALSE(matches(name, with_tls(tcp("10.0.0.1"), {}, "client.example.com")));
    CHECK_FALSE(matches(name, tcp("10.0.0.1")));
    config::AccessRule key;
    key.psk_user = "alice";
    CHECK(matches(key, with_tls(tcp("10.0.0.1"), {}, "alice")));
    CHECK_FALSE(matches(key, with_tls(tcp("10.0.0.1"), {}, "Alice")));
    CHECK_FALSE(matches(key, with_tls(tcp("10.0.0.1"), {"alice"})));
    CHECK_FALSE(matches(key, with_tls(tcp("10.0.0.1"), {}, "")));
    CHECK_FALSE(matches(key, tcp("10.0.0.1")));
}

TEST_CASE("access: a rule matches if all its conditions do; an empty rule matches no client") {
    config::AccessRule both = network("10.0.0.0/8");
    both.tls_name = "a";
    CHECK(matches(both, with_tls(tcp("10.0.0.1"), {"a"})));
    CHECK_FALSE(matches(both, with_tls(tcp("11.0.0.1"), {"a"})));
    CHECK_FALSE(matches(both, with_tls(tcp("10.0.0.1"), {"b"})));
    CHECK_FALSE(matches(both, tcp("10.0.0.1")));
    for (const Peer& peer : {tcp("10.0.0.1"), local(0, 0), virtual_machine(2), Peer{}}) {
        CHECK_FALSE(matches({}, peer));
    }
}

TEST_CASE("access: the first matching rule decides, and without a match access is denied") {
    const std::vector<config::AccessRule> rules = {network("10.1.0.0/16"),
                                                   read_only(network("10.0.0.0/8")),
                                                   network("10.2.0.0/16"), network("::1")};
    const AccessList list(rules);
    struct Row {
        Peer peer;
        Access access;
        std::optional<std::size_t> rule;
        const char* why;
    };
    const Row rows[] = {
        {tcp("10.1.0.1"), Access::read_write, 0, "rule 1 matches: network 10.1.0.0/16"},
        {tcp("10.2.0.1"), Access::read_only, 1, "rule 2 matches: network 10.0.0.0/8"},
        {tcp("::1"), Access::read_write, 3, "rule 4 matches: network ::1"},
        {tcp("11.0.0.1"), Access::denied, std::nullopt, "none of its 4 rules matches"},
        {local(0, 0), Access::denied, std::nullopt, "none of its 4 rules matches"},
        {Peer{}, Access::denied, std::nullopt, "none of its 4 rules matches"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.why);
        const Verdict verdict = list.decide(PeerIdentity(row.peer));
        CHECK(verdict.access == row.access);
        CHECK(verdict.rule == row.rule);
        CHECK(list.why(verdict) == row.why);
    }
    CHECK(decide({network("10.1.0.0/16")}, Peer{}).access == Access::denied);
}

TEST_CASE("access: without a list every client has access") {
    for (const Peer& peer : {tcp("10.0.0.1"), local(0, 0), virtual_machine(2), Peer{}}) {
        CHECK(decide({}, peer).access == Access::read_write);
        CHECK(AccessList().decide(PeerIdentity(peer)).access == Access::read_write);
    }
    CHECK(AccessList().why({.access = Access::read_write}) == "it has no access list");
}

using config::options_of;

TEST_CASE("exposure: an export is open to all if a TCP client of any address may open it") {
    const std::pair<const char*, const char*> rows[] = {
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
    for (const auto& [exports, expected] : rows) {
        CAPTURE(exports);
        config::Options options = options_of(std::string("exports: [") + exports + "]");
        CHECK(open_to_all(options).value_or("") == expected);
        options.tls.mode = config::TlsMode::optional;  // clients without TLS are not refused
        CHECK(open_to_all(options).value_or("") == expected);
        options.tls.mode = config::TlsMode::required;
        CHECK_FALSE(open_to_all(options).has_value());
    }
}

TEST_CASE("exposure: TLS without client verification is reported") {
    config::Options options = options_of("exports: [{name: a, access: [{uid: 0}]}, {name: b}]");
    options.tls = {config::TlsMode::required, "/f", false, ""};
    CHECK(contains(unproved_in_tls(options).value_or(""), "open export 'b'"));
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
