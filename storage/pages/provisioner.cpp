#include "storage/pages/provisioner.hpp"

#include <pthread.h>

#include <utility>

#include "storage/signals_blocked.hpp"

namespace gpunbd::storage {

Provisioner::Provisioner(std::function<void()> work) : work_(std::move(work)) {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { run(); });
    ::pthread_setname_np(thread_.native_handle(), "provisioner");
}

Provisioner::~Provisioner() {
    order_.store(Order::stop);
    order_.notify_one();
    thread_.join();
}

void Provisioner::wake() {
    Order none = Order::none;
    if (order_.compare_exchange_strong(none, Order::work)) order_.notify_one();
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
