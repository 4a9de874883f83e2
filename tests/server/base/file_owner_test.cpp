// Owners by name and by number.
#include "server/base/file_checks.hpp"

#include <unistd.h>

#include "tests/test.hpp"

namespace gpunbd::server::test {
namespace {

constexpr uid_t as_it_is = static_cast<uid_t>(-1);

TEST_CASE("file owner: names and numbers") {
    const std::tuple<const char*, uid_t, gid_t> rows[] = {
        {"root", 0, as_it_is},      {"root:root", 0, 0},
        {":root", as_it_is, 0},     {"0:0", 0, 0},
        {"54321", 54321, as_it_is}, {":54321", as_it_is, 54321},
        {"root:54321", 0, 54321},
    };
    for (const auto& [text, uid, gid] : rows) {
        CAPTURE(text);
        const FileOwner owner = find_owner(text);
        CHECK(owner.uid == uid);
        CHECK(owner.gid == gid);
    }
    for (const char* text : {"no-such-user-here", "root:no-such-group", "1x", "root:", "-1"}) {
        CAPTURE(text);
        CHECK_THROWS_AS(find_owner(text), std::runtime_error);
    }
}

TEST_CASE("file owner: a process may keep the owner of its own files") {
    CHECK(may_give_to({}));
    CHECK(may_give_to({.uid = ::geteuid(), .gid = ::getegid()}));
    CHECK(may_give_to({.uid = ::geteuid() + 1}) == (::geteuid() == 0));
}

}  // namespace
}  // namespace gpunbd::server::test
