// Compares the valid transitions of an enumeration with a table.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <string_view>

namespace gpunbd::test {

// `followers` has an x for each state that may follow, in the order of the enumeration.
template <typename State>
struct Transitions {
    State from;
    std::string_view followers;
};

// One row for each state, in the same order.
template <typename State>
void check_transitions(std::span<const Transitions<State>> rows) {
    for (std::size_t from = 0; from != rows.size(); ++from) {
        REQUIRE((from == 0 || rows[from - 1].from < rows[from].from));
        REQUIRE(rows[from].followers.size() == rows.size());
        for (std::size_t to = 0; to != rows.size(); ++to) {
            CAPTURE(from);
            CAPTURE(to);
            CHECK(may_follow(rows[from].from, rows[to].from) == (rows[from].followers[to] == 'x'));
        }
    }
}

}  // namespace gpunbd::test
