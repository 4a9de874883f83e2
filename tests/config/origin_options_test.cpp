// The key `origin` of an export.
#include <filesystem>

#include "config/origin_cycle.hpp"
#include "config/yaml_file.hpp"
#include "tests/config/text.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/test.hpp"

namespace gpunbd::config::test {
namespace {

constexpr const char* export_with_origin =
    "exports:\n"
    "  - {name: a, origin: {file: /srv/models.img, mode: read-only, cache: 1G}}\n"
    "  - {name: b, origin: {device: /dev/sdb, mode: write-back, max_age: 1m, max_unwritten: "
    "64M}}\n";

TEST_CASE("origin: the export is writable if its mode is, and is the same after it was written") {
    const Options options = options_of(export_with_origin);
    const ExportOptions& exported = options.exports[0];
    CHECK(exported.has_origin());
    CHECK(exported.read_only);
    CHECK_FALSE(options.exports[1].read_only);
    CHECK(options.exports[1].origin.max_age == std::chrono::minutes(1));
    CHECK(exported.origin.path() == "/srv/models.img");
    CHECK(exported.origin.cache == GiB);
    CHECK(exported.origin.prefetch == Prefetch::sequential);
    check_written(options);
}

TEST_CASE("origin: pages can make room without spill memory") {
    const std::string text =
        "exports: [{origin: {file: /a, mode: read-only}}]\n"
        "devices: [{id: host, keep_free: 1G}]\n";
    CHECK(joined(load_text(text, "f").problems) == "");
}

TEST_CASE("origin: an export of another server is the same after it was written") {
    const Options options = options_of(
        "exports: [{origin: {nbd: 'nbds://a/b?tls-certificates=/c', mode: write-back}}]");
    CHECK(options.exports[0].origin.path() == "nbds://a/b?tls-certificates=/c");
    check_written(options);
}

TEST_CASE("origin: contradictions are problems") {
    const std::pair<const char*, const char*> rows[] = {
        {"exports: [{origin: {file: /a, mode: write-around}}]",
         "f:1:37: exports[0].origin.mode: 'write-around' is none of read-only, write-through or "
         "write-back\n"},
        {"exports: [{origin: {nbd: /a, mode: read-only}}]",
         "f:1:26: exports[0].origin.nbd: '/a' is no NBD URI; write for example nbd://host/image\n"},
        {"exports: [{origin: {device: /a, nbd: 'nbd://b', mode: read-only}}]",
         "f:1:38: exports[0].origin.nbd: excludes device; leave one of the two out\n"},
        {"exports: [{origin: {file: /a}}]",
         "f:1:20: exports[0].origin.mode: is missing; write for example read-only\n"},
        {"exports: [{origin: {file: /a, mode: write-through, max_age: 1m}}]",
         "f:1:61: exports[0].origin.max_age: has no effect without mode: write-back\n"},
        {"exports: [{origin: {mode: read-only}}]",
         "f:1:20: exports[0].origin.file: is missing; write for example /srv/models.img\n"},
        {"exports: [{origin: {file: /a, device: /b, mode: read-only}}]",
         "f:1:39: exports[0].origin.device: excludes file; leave one of the two out\n"},
        {"exports: [{origin: {file: /a, mode: read-only, cache: 8M}}]",
         "f:1:20: exports[0].origin: its cache is smaller than 8 pages; use at least 16M\n"},
        {"exports: [{size: 1G, origin: {file: /a, mode: read-only}}]",
         "f:1:18: exports[0].size: has no meaning with origin; leave it out\n"},
        {"exports: [{read_only: false, origin: {file: /a, mode: read-only}}]",
         "f:1:23: exports[0].read_only: contradicts origin.mode; leave it out\n"},
        {"exports: [{name: a, keep: true, origin: {file: /a, mode: read-only}}, {name: b, "
         "clone_of: a}]",
         "f:1:91: exports[1].clone_of: the export 'a' has keep, so its clone needs it too; add "
         "keep: true here\n"},
        {"exports: [{devices: [host, 'cuda:0'], origin: {file: /a, mode: read-only}}]",
         "f:1:21: exports[0].devices: has several devices; an export with origin has one\n"},
        {"exports: [{name: a, origin: {file: /a, mode: write-back}}, {name: b, clone_of: a}]",
         "f:1:80: exports[1].clone_of: the export 'a' writes to its origin, and cannot be cloned; "
         "only one with mode: read-only can\n"},
    };
    for (const auto& [text, problems] : rows) {
        CAPTURE(text);
        CHECK(joined(load_text(text, "f").problems) == problems);
    }
}

TEST_CASE("origin: an export of the same server is refused") {
    const ServerAddresses loopback{
        .tcp = {{.address = "127.0.0.1", .port = 10809}, {.address = "::1", .port = 10809}},
        .sockets = {"/run/gpunbd.sock"}};
    const ServerAddresses all{.tcp = {{.address = "0.0.0.0", .port = 1}}, .sockets = {}};
    const auto exports_with = [](const char* uri) {
        ExportList exports;
        exports.push_back({});
        ExportOptions cached;
        cached.origin.nbd = uri;
        exports.push_back(cached);
        return exports;
    };
    const struct {
        const char* uri;
        const ServerAddresses& own;
        bool is_own;
    } rows[] = {
        {"nbd://localhost/a", loopback, true},
        {"nbds://LOCALHOST.:10809/a", loopback, true},
        {"nbd://127.0.0.1", loopback, true},
        {"nbd://[::1]:10809/a", loopback, true},
        {"nbd://[::ffff:127.0.0.1]/a", loopback, true},
        {"nbd://0.0.0.0/a", loopback, true},
        {"nbd+unix:///a?socket=/run/../run/gpunbd.sock", loopback, true},
        {"nbd://127.0.0.2/a", loopback, false},
        {"nbd://localhost:10810/a", loopback, false},
        {"nbd://image.example.org/a", loopback, false},
        {"nbd+unix:///a?socket=/run/other.sock", loopback, false},
        {"nbd+vsock://2/a", loopback, false},
        {"nbd://127.0.0.2:1/a", all, true},
        {"nbd://[::1]:1/a", all, false},
        {"nbd://192.0.2.1:1/a", all, false},
    };
    for (const auto& [uri, own, is_own] : rows) {
        CAPTURE(uri);
        const auto error = origin_cycle(exports_with(uri), own);
        REQUIRE(error.has_value() == is_own);
        if (is_own) CHECK(error->exported == 1);
    }
    const gpunbd::test::TemporaryFolder folder;
    std::filesystem::create_directory_symlink(folder.path(), folder.path("link"));
    const ServerAddresses linked{.tcp = {}, .sockets = {folder.write("socket", "")}};
    const std::string uri = "nbd+unix:///a?socket=" + folder.path("link/socket");
    CHECK(origin_cycle(exports_with(uri.c_str()), linked).has_value());
    CHECK(origin_cycle(exports_with("nbd://[::1]/a"), loopback)->what ==
          "nbd://[::1]/a is the export 'a' of this server, which would wait for itself; name an "
          "export of another server");
}

TEST_CASE("rules: two paths name the same file") {
    const gpunbd::test::TemporaryFolder folder;
    const std::string file = folder.write("file", "");
    std::filesystem::create_directory_symlink(folder.path(), folder.path("link"));
    std::filesystem::create_hard_link(file, folder.path("hard"));
    std::filesystem::create_symlink("nowhere", folder.path("dangling"));
    const struct {
        std::string other;
        bool is_same;
    } rows[] = {
        {file, true},
        {folder.path("./link/../file"), true},
        {folder.path("link/file"), true},
        {folder.path("hard"), true},
        {folder.path("absent"), false},
        {folder.path("dangling"), false},
        {folder.write("equal", ""), false},
        {"/dev/null", false},
        {"", false},
    };
    for (const auto& [other, is_same] : rows) {
        CAPTURE(other);
        CHECK(rules::same_file(file, other) == is_same);
        CHECK(rules::same_file(other, file) == is_same);
        CHECK(rules::same_file(other, other));
    }
}

}  // namespace
}  // namespace gpunbd::config::test
