#include "server/daemon/server_context.hpp"

#include "tests/transitions.hpp"

namespace gpunbd::server::test {

TEST_CASE("phases of a server: every pair of phases is a valid transition or is none") {
    using enum Phase;
    constexpr gpunbd::test::Transitions<Phase> rows[] = {
        {starting, ".x..x"},         {serving, "..xxx"},  {handing_over, ".x..x"},
        {awaiting_swapoff, "...xx"}, {draining, "....."},
    };
    gpunbd::test::check_transitions<Phase>(rows);
}

}  // namespace gpunbd::server::test
