#include "config/nbd_target.hpp"

#include "tests/test.hpp"

namespace gpunbd::config {
namespace {

TEST_CASE("nbd target: parses URIs") {
    const std::pair<const char*, NbdTarget> rows[] = {
        {"nbd://host", {.host = "host"}},
        {"nbd://host:/", {.host = "host"}},
        {"NBD://host:1/a/b", {.host = "host", .port = "1", .export_name = "a/b"}},
        {"nbd://user@host/x#z", {.host = "host", .export_name = "x", .user = "user"}},
        {"nbds://a%40b@host/?tls-psk-file=/k",
         {.tls = true, .host = "host", .user = "a@b", .psk_file = "/k"}},
        {"nbds+unix://alice@/?socket=/s&tls-psk-file=/k",
         {.tls = true, .socket = "/s", .user = "alice", .psk_file = "/k"}},
        {"nbd://[::1]:2/%2f%C3%A4", {.host = "::1", .port = "2", .export_name = "/\xc3\xa4"}},
        {"nbd://[fe80::1%25eth0]/", {.host = "fe80::1%eth0"}},
        {"nbd://[fe80::1%eth0]/", {.host = "fe80::1%eth0"}},
        {"nbd://10.0.0.1//x", {.host = "10.0.0.1", .export_name = "/x"}},
        {"nbd+unix:///?socket=/run/a%20b", {.socket = "/run/a b"}},
        {"nbds+unix:///x?tls-verify-peer=false&socket=/run/s&tls-hostname=h",
         {.tls = true,
          .socket = "/run/s",
          .export_name = "x",
          .tls_hostname = "h",
          .verify = false}},
        {"nbds://host/?tls-certificates=/etc/a%20b",
         {.tls = true, .host = "host", .certificates = "/etc/a b"}},
    };
    for (const auto& [uri, expected] : rows) {
        CAPTURE(uri);
        const NbdTarget target = parse_nbd_uri(uri);
        CHECK(target.tls == expected.tls);
        CHECK(target.host == expected.host);
        CHECK(target.port == expected.port);
        CHECK(target.socket == expected.socket);
        CHECK(target.export_name == expected.export_name);
        CHECK(target.user == expected.user);
        CHECK(target.psk_file == expected.psk_file);
        CHECK(target.certificates == expected.certificates);
        CHECK(target.tls_hostname == expected.tls_hostname);
        CHECK(target.verify == expected.verify);
    }
}

}  // namespace
}  // namespace gpunbd::config
