#include "server/nbd/request_state.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <string_view>

using namespace gpunbd::server;

TEST_CASE("request states: every pair of states is a valid transition or is none") {
    // One line for each state, with an x for each state that may follow, in the order of the enum.
    struct Row {
        RequestState from;
        std::string_view followers;
    };
    using enum RequestState;
    constexpr std::array rows{
        Row{idle, ".xx.x..x..."},        Row{waiting, "....x.....x"},
        Row{receiving, "...xx...x.x"},   Row{discarding, ".......xx.x"},
        Row{executing, "...x.xxx..x"},   Row{staged, "......xx..x"},
        Row{replying, ".......x.xx"},    Row{answered, "x.........."},
        Row{handed_over, "x......x..x"}, Row{broken, "x.........x"},
        Row{abandoned, "x.........."},
    };
    for (std::size_t from = 0; from != rows.size(); ++from) {
        REQUIRE(static_cast<std::size_t>(rows[from].from) == from);
        REQUIRE(rows[from].followers.size() == rows.size());
        for (std::size_t to = 0; to != rows.size(); ++to) {
            CAPTURE(from);
            CAPTURE(to);
            CHECK(may_follow(rows[from].from, rows[to].from) == (rows[from].followers[to] == 'x'));
        }
    }
}
