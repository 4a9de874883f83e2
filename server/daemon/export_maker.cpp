#include "server/daemon/export_maker.hpp"

#include <pthread.h>

#include <boost/asio/post.hpp>
#include <chrono>
#include <exception>
#include <new>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/signals_blocked.hpp"

namespace gpunbd::server {

namespace {

constexpr auto retry_interval = std::chrono::milliseconds(10);

// The main thread waits for the outcome, and an exception must not leave the thread.
template <typename Call>
void retry_until_allocated(const Call& call) {
    for (;;) {
        try {
            return call();
        } catch (const std::bad_alloc&) {
            std::this_thread::sleep_for(retry_interval);
        }
    }
}

}  // namespace

void ExportMaker::submit(Job job) {
    if (busy()) {
        next_ = std::move(job);
    } else {
        start(std::move(job));
    }
}

void ExportMaker::give_up() {
    next_.reset();
    thread_.request_stop();
}

void ExportMaker::stop() {
    give_up();
    if (thread_.joinable()) thread_.join();
    job_.reset();
    work_.reset();
    made_ = {};
}

void ExportMaker::start(Job job) {
    Make make = job.prepare();
    if (!make) return;
    job_ = std::make_shared<Job>(std::move(job));
    const storage::SignalsBlocked blocked;
    work_.emplace(io_.get_executor());
    thread_ = std::jthread([this, make = std::move(make)](const std::stop_token& stop) {
        ::pthread_setname_np(::pthread_self(), "exports");
        this->make(stop, make);
    });
}

void ExportMaker::make(const std::stop_token& stop, const Make& make) {
    try {
        made_ = make(stop);
    } catch (const std::exception& error) {
        made_ = {};
        retry_until_allocated([&] { made_.problems.emplace_back(error.what()); });
    }
    retry_until_allocated([this, weak = std::weak_ptr(job_)] {
        boost::asio::post(io_, [this, weak] {
            if (!weak.expired()) finish();
        });
    });
}

void ExportMaker::finish() {
    GPUNBD_ASSERT(busy() && job_ != nullptr, "a job in progress ends once");
    thread_.join();
    work_.reset();
    std::optional<Job> next = std::exchange(next_, std::nullopt);
    // Destroyed at the end of this function: a job may hold references to removed exports.
    const std::shared_ptr<const Job> job = std::exchange(job_, nullptr);
    // The next job starts even if this one fails.
    std::exception_ptr failure;
    try {
        job->done(std::exchange(made_, {}));
    } catch (...) {
        failure = std::current_exception();
    }
    if (next) submit(std::move(*next));  // `done` may have started a job
    if (failure) std::rethrow_exception(failure);
}

}  // namespace gpunbd::server
