// Access rules and rates in the configuration: valid values, and the errors for invalid ones.
#include "config/rules.hpp"
#include "config/yaml_file.hpp"
#include "tests/config/text.hpp"
#include "tests/test.hpp"

namespace gpunbd::config {
namespace {

Network network(const char* text) {
    const auto checked = rules::network(text);
    REQUIRE_MESSAGE(std::holds_alternative<Network>(checked), text);
    return std::get<Network>(checked);
}

std::string problem(const char* text) {
    const auto checked = rules::network(text);
    const auto* wrong = std::get_if<rules::Wrong>(&checked);
    return wrong == nullptr ? "" : wrong->what;
}

IpAddress ip(const char* text) {
    const auto address = parse_ip(text);
    REQUIRE_MESSAGE(address.has_value(), text);
    return *address;
}

TEST_CASE("access: a network contains exactly the addresses with its prefix") {
    using Addresses = std::vector<const char*>;
    const struct {
        const char* text;
        Addresses inside;
        Addresses outside;
    } rows[] = {
        {"0.0.0.0/0", {"0.0.0.0", "255.255.255.255"}, {"::"}},
        {"10.0.0.0/8", {"10.0.0.0", "10.255.255.255"}, {"9.255.255.255", "11.0.0.0"}},
        {"10.1.2.4/30", {"10.1.2.4", "10.1.2.7"}, {"10.1.2.3", "10.1.2.8"}},
        {"10.1.2.4/31", {"10.1.2.5"}, {"10.1.2.6", "10.1.2.3"}},
        {"10.1.2.3/32", {"10.1.2.3"}, {"10.1.2.2"}},
        {"10.1.2.3", {"10.1.2.3"}, {"10.1.2.30"}},  // a prefix of the text only
        {"128.0.0.0/1", {"128.0.0.0"}, {"127.255.255.255"}},
        {"::/0", {"::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}, {"1.2.3.4"}},
        {"2001:db8:0:1::/64",
         {"2001:db8:0:1::", "2001:db8:0:1:ffff:ffff:ffff:ffff"},
         {"2001:db8:0:2::", "2001:db8:0:0:ffff:ffff:ffff:ffff"}},
        {"2001:db8:8000::/33", {"2001:db8:8000::1"}, {"2001:db8:7fff::1"}},
        {"::1", {"::1"}, {"::2"}},
        {"::2/127", {"::3"}, {"::4"}},
    };
    for (const auto& [text, inside, outside] : rows) {
        CAPTURE(text);
        for (const char* address : inside) CHECK(network(text).holds(ip(address)));
        for (const char* address : outside) CHECK_FALSE(network(text).holds(ip(address)));
    }
}

TEST_CASE("access: IPv4-mapped addresses convert to IPv4") {
    CHECK(ip("::ffff:10.1.2.3").mapped());
    CHECK(ip("::ffff:10.1.2.3").unmapped() == ip("10.1.2.3"));
    CHECK_FALSE(ip("::fffe:10.1.2.3").mapped());
    CHECK_FALSE(ip("1::ffff:10.1.2.3").mapped());
    CHECK_FALSE(ip("::10.1.2.3").mapped());
    CHECK_FALSE(ip("10.1.2.3").mapped());
    CHECK(ip("::1").unmapped() == ip("::1"));
    for (const char* each : {"127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1"}) {
        CAPTURE(each);
        CHECK(ip(each).loopback());
    }
    for (const char* each : {"0.0.0.0", "::", "128.0.0.1", "126.255.255.255", "::2", "1::1",
                             "::ffff:10.0.0.1", "::127.0.0.1"}) {
        CAPTURE(each);
        CHECK_FALSE(ip(each).loopback());
    }
    for (const char* each : {"", "1.2.3", "1.2.3.4.5", "1.2.3.4 ", " 1.2.3.4", "01.2.3.4x",
                             "fe80::1%lo", "256.1.1.1", "[::1]"}) {
        CAPTURE(each);
        CHECK_FALSE(parse_ip(each).has_value());
    }
    CHECK_FALSE(parse_ip(std::string("1.2.3.4\0", 8)).has_value());
}

TEST_CASE("access: an invalid network is refused with a valid example") {
    const char* const example =
        " is not a network; write for example 10.0.0.0/8, 2001:db8::/32, or one numeric address";
    const std::pair<const char*, const char*> rows[] = {
        {"10.1.2.3/8",
         "'10.1.2.3/8' has bits set after the first 8; write 10.0.0.0/8 for the network, or "
         "10.1.2.3 for the one address"},
        {"0.0.0.1/0",
         "'0.0.0.1/0' has bits set after the first 0; write 0.0.0.0/0 for the network, or 0.0.0.1 "
         "for the one address"},
        {"10.1.2.5/31",
         "'10.1.2.5/31' has bits set after the first 31; write 10.1.2.4/31 for the network, or "
         "10.1.2.5 for the one address"},
        {"2001:db8::1/64",
         "'2001:db8::1/64' has bits set after the first 64; write 2001:db8::/64 for the network, "
         "or 2001:db8::1 for the one address"},
        {"::ffff:10.1.2.3",
         "'::ffff:10.1.2.3' is an IPv4-mapped address, and clients match as IPv4; write 10.1.2.3"},
        {"::ffff:10.1.2.3/104",
         "'::ffff:10.1.2.3/104' is an IPv4-mapped address, and clients match as IPv4; write "
         "10.0.0.0/8"},
        {"fe80::1%eth0",
         "'fe80::1%eth0' has a zone, which rules do not support; leave '%eth0' out"},
        {"fe80::%eth0/64",
         "'fe80::%eth0/64' has a zone, which rules do not support; leave '%eth0' out"},
        {"10.0.0.0/33",
         "'10.0.0.0/33' has an invalid prefix; write a whole number from 0 to 32 after the '/', "
         "for example 10.0.0.0/32"},
        {"::/129",
         "'::/129' has an invalid prefix; write a whole number from 0 to 128 after the '/', for "
         "example ::/128"},
    };
    for (const auto& [text, expected] : rows) {
        CAPTURE(text);
        CHECK(problem(text) == expected);
    }
    for (const char* text : {"10.0.0.0/", "10.0.0.0/8x", "10.0.0.0/8 ", "10.0.0.0/ 8",
                             "10.0.0.0/8/8", "10.0.0.0/-1", "10.0.0.0/08", "10.0.0.0/255.0.0.0"}) {
        CAPTURE(text);
        CHECK(contains(problem(text), "has an invalid prefix"));
    }
    for (const char* text :
         {"", "/8", "10.0.0/8", "10.0.0.0.0/8", "10", "localhost", "*", "any", "10.0.0.0-10.0.0.9",
          "[::1]", "::1::/64", "10.1.2.3x", "0x0a000000/8"}) {
        CAPTURE(text);
        const std::string error = problem(text);
        CHECK(contains(error, example));
    }
    const auto with_nul = rules::network(std::string_view("10.0.0.1\0/8", 11));
    CHECK(std::holds_alternative<rules::Wrong>(with_nul));
}

TEST_CASE("access: written rules are read back unchanged") {
    const Options options = options_of(R"(exports:
  - name: a
    access:
      - network: 10.0.0.0/8
        tls_name: A.example
        mode: read-only
      - {uid: root, gid: 7}
      - {psk_user: alice}
      - {cid: 4294967295}
      - network: "::1"
    max_connections: 5
    max_connections_per_peer: 2
    rates: {bytes_per_second: 64K, iops: 3, burst: 0}
    rates_per_peer: {iops: 9}
  - name: b
insecure: true
)");
    const ExportOptions& a = options.exports[0];
    REQUIRE(a.access.size() == 5);
    CHECK(a.access[0].network == network("10.0.0.0/8"));
    CHECK(a.access[0].tls_name == "A.example");
    CHECK(a.access[0].mode == AccessMode::read_only);
    CHECK(a.access[0].line.number == 4);
    CHECK(a.access[1].uid == Account{0, "root"});
    CHECK(a.access[1].gid == Account{7, "7"});
    CHECK(a.access[1].mode == AccessMode::read_write);
    CHECK(a.access[1].line.number == 7);
    CHECK(a.access[2].psk_user == "alice");
    CHECK(a.access[3].cid == 4294967295U);
    CHECK(a.access[4].network == network("::1"));
    CHECK(a.max_connections == 5U);
    CHECK(a.max_connections_per_peer == 2U);
    CHECK(a.rates == Rates{64 * KiB, 3, std::chrono::seconds(0)});
    CHECK(a.rates_per_peer == Rates{std::nullopt, 9, std::chrono::seconds(1)});
    CHECK(options.exports[1].access.empty());
    CHECK_FALSE(options.exports[1].rates.any());
    CHECK(options.insecure);
    check_written(options);
    // The options are equal although the line differs.
    CHECK(options_of(to_yaml(options)).exports[0].access[0].line.number != 4);
}

TEST_CASE("access: errors in rules and rates") {
    const char* const each =
        "network is for TCP, uid and gid are for Unix sockets, cid is for vsock; write a rule for "
        "each\n";
    const std::tuple<const char*, const char*, const char*> rows[] = {
        {"empty list", "    access: []\n",
         "f:2:13: exports[0].access: is empty; give a rule, or leave the key out to permit all "
         "clients\n"},
        {"no condition", "    access: [{mode: read-only}]\n",
         "f:2:14: exports[0].access[0].network: is missing; write for example network: 10.0.0.0/8, "
         "uid: 1000, gid: disk, tls_name: client.example.com, psk_user: alice, or cid: 3\n"},
        {"an invalid condition is not reported as missing", "    access: [{network: x}]\n",
         "f:2:24: exports[0].access[0].network: 'x' is not a network; write for example "
         "10.0.0.0/8, 2001:db8::/32, or one numeric address\n"},
        {"mode", "    access: [{cid: 3, mode: ro}]\n",
         "f:2:29: exports[0].access[0].mode: 'ro' is none of read-write or read-only\n"},
        {"user", "    access: [{uid: no such user}]\n",
         "f:2:20: exports[0].access[0].uid: there is no user 'no such user' on this machine; write "
         "a number, or name one of `getent passwd`\n"},
        {"group", "    access: [{gid: ''}]\n",
         "f:2:20: exports[0].access[0].gid: there is no group '' on this machine; write a number, "
         "or name one of `getent group`\n"},
        {"invalid id", "    access: [{uid: 4294967295}]\n",
         "f:2:20: exports[0].access[0].uid: '4294967295' is out of range; write a whole number "
         "from 0 to 4294967294\n"},
        {"name", "    access: [{tls_name: ''}]\n",
         "f:2:25: exports[0].access[0].tls_name: '' is not a name that a certificate can have; "
         "write for example client.example.com\n"},
        {"key", "    access: [{psk_user: 'a:b'}]\n",
         "f:2:25: exports[0].access[0].psk_user: 'a:b' is not a user of a file of shared keys; "
         "write the text before the ':' of a line, for example alice\n"},
        {"rate below the minimum", "    rates: {bytes_per_second: 1K}\n",
         "f:2:31: exports[0].rates.bytes_per_second: '1K' is out of range; write 64K to 1T\n"},
        {"no rate", "    rates: {burst: 3}\n",
         "f:2:12: exports[0].rates.bytes_per_second: is missing; write for example "
         "bytes_per_second: 100M, or iops: 1000\n"},
        {"no connections", "    max_connections: 0\n",
         "f:2:22: exports[0].max_connections: '0' is out of range; write a whole number from 1 to "
         "1000000\n"},
    };
    for (const auto& [name, rest, expected] : rows) {
        CAPTURE(name);
        const std::string file = "exports:\n" + std::string(rest).replace(0, 4, "  - ");
        CHECK(joined(load_text(file, "f").problems) == expected);
    }
    for (const char* rule : {"{network: 10.0.0.0/8, uid: 3}", "{uid: 3, cid: 3}",
                             "{gid: 3, network: '::1'}", "{uid: 3, gid: 4, cid: 3}"}) {
        CAPTURE(rule);
        const auto problems =
            joined(load_text(std::string("exports: [{access: [") + rule + "]}]", "f").problems);
        CHECK(contains(problems, each));
    }
    CHECK(contains(
        joined(load_text("exports: [{access: [{tls_name: a, psk_user: b}]}]", "f").problems),
        "a client presents a certificate or uses a shared key"));
}

}  // namespace
}  // namespace gpunbd::config
