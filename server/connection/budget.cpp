#include "server/connection/budget.hpp"

namespace gpunbd::server {

void Budget::wake() {
    // Those who wait again while they are told come after the last of these.
    boost::intrusive::list<Waiter, boost::intrusive::constant_time_size<false>> told;
    told.swap(waiters_);
    while (!told.empty()) {
        Waiter& waiter = told.front();
        told.pop_front();
        waiter.budget_has_room();
    }
}

}  // namespace gpunbd::server
