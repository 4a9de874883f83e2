#include "server/daemon/lifecycle.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <string_view>

using namespace gpunbd::server;

TEST_CASE("phases of a server: every pair of phases is a valid transition or is none") {
    // One line for each phase, with an x for each phase that may follow, in the order of the enum.
    struct Row {
        Phase from;
        std::string_view followers;
    };
    using enum Phase;
    constexpr std::array rows{
        Row{starting, ".x..x"},         Row{serving, "..xxx"},  Row{handing_over, ".x..x"},
        Row{awaiting_swapoff, "...xx"}, Row{draining, "....."},
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
