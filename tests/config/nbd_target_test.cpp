#include "config/nbd_target.hpp"

#include "tests/test.hpp"

namespace gpunbd::config {
namespace {

TEST_CASE("nbd target: parses URIs") {
    const struct {
        const char* uri;
        NbdTarget target;
    } rows[] = {
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
    for (const auto& row : rows) {
        CAPTURE(row.uri);
        const NbdTarget target = parse_nbd_uri(row.uri);
        CHECK(target.tls == row.target.tls);
        CHECK(target.host == row.target.host);
        CHECK(target.port == row.target.port);
        CHECK(target.socket == row.target.socket);
        CHECK(target.export_name == row.target.export_name);
        CHECK(target.user == row.target.user);
        CHECK(target.psk_file == row.target.psk_file);
        CHECK(target.certificates == row.target.certificates);
        CHECK(target.tls_hostname == row.target.tls_hostname);
        CHECK(target.verify == row.target.verify);
    }
}

}  // namespace
}  // namespace gpunbd::config
