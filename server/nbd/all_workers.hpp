// `co_await all_workers<Value>(...)`: one value of each worker.
#pragma once

#include <boost/asio/io_context.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "server/base/task.hpp"
#include "server/nbd/worker.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/mutex.hpp"

namespace gpunbd::server {

template <typename Value>
class GatheredValues {
 public:
    using Give = typename Awaited<std::vector<Value>>::Giver;

    GatheredValues(Give give, std::size_t count) : give_(std::move(give)), left_(count) {
        values_.reserve(count);
        if (count == 0) give_({});
    }
    // Any thread. Allocates nothing.
    void add(Value value) {
        const Lock lock(mutex_);
        GPUNBD_ASSERT(left_ != 0, "each worker gives one value");
        values_.push_back(std::move(value));
        if (--left_ == 0) give_(std::move(values_));
    }

 private:
    const Give give_;
    Mutex mutex_;
    std::size_t left_ GUARDED_BY(mutex_);
    std::vector<Value> values_ GUARDED_BY(mutex_);
};

// Invokes `call` with each worker and `done`; `done(value)` is called once, on any thread. A worker
// that has stopped gives nothing: then the coroutine waits until its owner destroys it.
template <typename Value, typename Call>
Awaited<std::vector<Value>> all_workers(boost::asio::io_context& io,
                                        const std::vector<std::unique_ptr<Worker>>& workers,
                                        Call call) {
    Awaited<std::vector<Value>> all(io);
    const auto gathered = std::make_shared<GatheredValues<Value>>(all.giver(), workers.size());
    for (const auto& worker : workers) {
        std::invoke(call, *worker, [gathered](Value value) { gathered->add(std::move(value)); });
    }
    return all;
}

}  // namespace gpunbd::server
