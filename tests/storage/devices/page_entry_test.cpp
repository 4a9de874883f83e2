#include "storage/devices/page_entry.hpp"

#include "tests/test.hpp"
#include "tests/transitions.hpp"

namespace gpunbd::storage::test {
namespace {

using enum PageEntry::State;
using gpunbd::test::Transitions;

TEST_CASE("page entry: the transitions of its life") {
    static constexpr Transitions<PageEntry::State> rows[] = {
        //           hole, mapped, retired, moving, shared
        {hole, "xx.xx"},   {mapped, "xxxxx"}, {retired, "xx..."},
        {moving, "xx..x"}, {shared, "xxxx."},
    };
    gpunbd::test::check_transitions<PageEntry::State>(rows);
}

TEST_CASE("page entry: the transitions that keep the page") {
    constexpr PageEntry page = PageEntry::mapped(1, 7);
    constexpr PageEntry others[] = {PageEntry::mapped(1, 8), PageEntry::mapped(2, 7)};
    CHECK(may_follow(page, PageEntry::moving(1, 7)));
    CHECK(may_follow(page, PageEntry::retired(1, 7)));
    CHECK(may_follow(page, PageEntry::shared(1, 7)));
    CHECK(may_follow(PageEntry::shared(1, 7), PageEntry::moving(1, 7)));
    for (const PageEntry other : others) {
        CHECK_FALSE(may_follow(other, PageEntry::moving(1, 7)));
        CHECK_FALSE(may_follow(other, PageEntry::retired(1, 7)));
        CHECK_FALSE(may_follow(other, PageEntry::shared(1, 7)));
        // Another page replaces it, or it has moved.
        CHECK(may_follow(other, page));
        CHECK(may_follow(PageEntry::moving(other.device(), other.page()), PageEntry::shared(1, 7)));
    }
}

}  // namespace
}  // namespace gpunbd::storage::test
