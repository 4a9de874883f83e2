#include "server/nbd/request_state.hpp"

#include "tests/transitions.hpp"

namespace gpunbd::server::test {

TEST_CASE("request states: every pair of states is a valid transition or is none") {
    using enum RequestState;
    constexpr gpunbd::test::Transitions<RequestState> rows[] = {
        {idle, ".xx.x..x..."},       {waiting, "....x.....x"},   {receiving, "...xx...x.x"},
        {discarding, ".......xx.x"}, {executing, "...x.xxx..x"}, {staged, "......xx..x"},
        {replying, ".......x.xx"},   {answered, "x.........."},  {handed_over, "x......x..x"},
        {broken, "x.........x"},     {abandoned, "x.........."},
    };
    gpunbd::test::check_transitions<RequestState>(rows);
}

}  // namespace gpunbd::server::test
