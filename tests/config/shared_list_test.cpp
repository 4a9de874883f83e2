#include "config/shared_list.hpp"

#include "tests/test.hpp"

namespace {

using List = gpunbd::config::SharedList<std::string>;

TEST_CASE("shared list: copies share their elements until one of them is changed") {
    const List original{"a", "b", "c"};
    List copy = original;
    CHECK(&*copy.begin() == &*original.begin());
    CHECK(copy == original);
    copy[1] = "x";
    copy.edit(copy.begin()) = "y";
    CHECK(copy == List{"y", "x", "c"});
    CHECK(original == List{"a", "b", "c"});
    CHECK(&std::as_const(copy)[2] == &original[2]);
}

TEST_CASE("shared list: an element that no other list has is changed in place") {
    List list{"a", "b"};
    const std::string* const first = &*list.begin();
    list.emplace_back() = "c";
    list.front() = "x";
    CHECK(&*list.begin() == first);
    List copy = list;
    copy.erase(copy.begin());
    copy.erase_if([](const std::string& each) { return each == "c"; });
    CHECK(copy == List{"b"});
    CHECK(list == List{"x", "b", "c"});
}

}  // namespace
