#include "storage/pages/provisioner.hpp"

#include <pthread.h>

#include <system_error>

#include "storage/base/signals_blocked.hpp"

namespace gpunbd::storage {

void Provisioner::stop() {
    if (!started_.exchange(false)) return;
    order_.store(Order::stop);
    order_.notify_one();
    thread_.join();
}

bool Provisioner::wake() noexcept {
    if (!started_.load() && !start()) return false;
    Order none = Order::none;
    if (order_.compare_exchange_strong(none, Order::work)) order_.notify_one();
    return true;
}

bool Provisioner::start() noexcept {
    const Lock lock(start_mutex_);
    if (started_.load()) return true;
    try {
        const SignalsBlocked blocked;
        thread_ = std::thread([this] { run(); });
    } catch (const std::exception&) {
        return false;
    }
    ::pthread_setname_np(thread_.native_handle(), "provisioner");
    started_.store(true);
    return true;
}

void Provisioner::run() {
    while (true) {
        order_.wait(Order::none);
        Order work = Order::work;
        if (!order_.compare_exchange_strong(work, Order::none)) return;
        work_();
    }
}

}  // namespace gpunbd::storage
