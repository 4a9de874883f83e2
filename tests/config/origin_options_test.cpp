// The key `origin` of an export.
#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "config/yaml_file.hpp"
#include "tests/config/text.hpp"

namespace gpunbd::config::test {
namespace {

constexpr const char* export_with_origin =
    "exports: [{origin: {file: /srv/models.img, mode: read-only, cache: 1G}}]\n";

TEST_CASE("origin: the export is read-only, and is the same after it was written") {
    const Loaded loaded = load_text(export_with_origin, "f");
    REQUIRE(joined(loaded.problems) == "");
    const ExportOptions& exported = loaded.options.exports[0];
    CHECK(exported.has_origin());
    CHECK(exported.read_only);
    CHECK(exported.origin.path() == "/srv/models.img");
    CHECK(exported.origin.cache == GiB);
    CHECK(exported.origin.prefetch == Prefetch::sequential);
    const Loaded again = load_text(to_yaml(loaded.options), "f");
    CHECK(joined(again.problems) == "");
    CHECK(again.options == loaded.options);
}

TEST_CASE("origin: an export of another server is the same after it was written") {
    const Loaded loaded = load_text(
        "exports: [{origin: {nbd: 'nbds://a/b?tls-certificates=/c', mode: write-back}}]", "f");
    REQUIRE(joined(loaded.problems) == "");
    CHECK(loaded.options.exports[0].origin.path() == "nbds://a/b?tls-certificates=/c");
    const Loaded again = load_text(to_yaml(loaded.options), "f");
    CHECK(joined(again.problems) == "");
    CHECK(again.options == loaded.options);
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
        {"exports: [{devices: [host, 'cuda:0'], origin: {file: /a, mode: read-only}}]",
         "f:1:21: exports[0].devices: has several devices; an export with origin has one\n"},
        {"exports: [{name: a, origin: {file: /a, mode: read-only}}, {name: b, clone_of: a}]",
         "f:1:79: exports[1].clone_of: the export 'a' has an origin, and cannot be cloned; write "
         "another one\n"},
    };
    for (const auto& [text, problems] : rows) {
        CAPTURE(text);
        CHECK(joined(load_text(text, "f").problems) == problems);
    }
}

}  // namespace
}  // namespace gpunbd::config::test
