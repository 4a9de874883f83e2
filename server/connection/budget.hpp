// Memory that many connections share: what their requests hold is charged here, and while too much
// is, those who want more wait in order.
#pragma once

#include <boost/intrusive/list.hpp>
#include <cstdint>

namespace gpunbd::server {

class Budget {
 public:
    // Somebody who waits until the budget has room. It may go at any time.
    class Waiter : public boost::intrusive::list_base_hook<
                       boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
     public:
        virtual void budget_has_room() = 0;

     protected:
        ~Waiter() = default;
    };

    explicit Budget(std::uint64_t max) : max_(max) {}  // bytes

    void charge(std::uint64_t bytes) { used_ += bytes; }
    void discharge(std::uint64_t bytes) {
        used_ -= bytes;
        if (!waiters_.empty() && !exceeded()) wake();
    }
    bool exceeded() const { return used_ > max_; }
    std::uint64_t used() const { return used_; }
    // Told once. To wait twice is to wait once.
    void wait(Waiter& waiter) {
        if (!waiter.is_linked()) waiters_.push_back(waiter);
    }

 private:
    void wake();

    const std::uint64_t max_;
    std::uint64_t used_ = 0;
    boost::intrusive::list<Waiter, boost::intrusive::constant_time_size<false>> waiters_;
};

}  // namespace gpunbd::server
