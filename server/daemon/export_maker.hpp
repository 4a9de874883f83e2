// Creates exports on a thread of its own. Allocating all memory of an export can take a minute;
// meanwhile the server accepts clients and handles signals.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>

#include "server/daemon/export_factory.hpp"

namespace gpunbd::server {

class ExportMaker {
 public:
    using Make = std::function<MadeExports(const std::stop_token&)>;
    struct Job {
        // Called on the thread of `io` when the job starts. Returns the function that creates the
        // exports; null: nothing to do.
        std::function<Make()> prepare;
        // Called on that thread with the created exports.
        std::function<void(MadeExports)> done;
    };

    // `io` outlives this object.
    explicit ExportMaker(boost::asio::io_context& io) : io_(io) {}
    // Stops the job in progress and waits for it. `done` is not called.
    ~ExportMaker() = default;
    ExportMaker(const ExportMaker&) = delete;
    ExportMaker& operator=(const ExportMaker&) = delete;

    // On the thread of `io`. While a job is in progress, the maker keeps only the last submitted
    // job.
    void submit(Job job);
    // Cancels the job in progress and drops the waiting one.
    void give_up();
    // Calls give_up() and waits. `done` of the job in progress is not called.
    void stop();
    bool busy() const { return thread_.joinable(); }

 private:
    void start(Job job);
    void make(const std::stop_token& stop, const Make& make);
    void finish();

    boost::asio::io_context& io_;
    // The job in progress. The handler that the thread posts holds a weak reference, so it does
    // nothing after stop() or the destruction.
    std::shared_ptr<Job> job_;
    // Keeps the event loop running while a job is in progress.
    std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work_;
    std::optional<Job> next_;
    MadeExports made_;
    std::jthread thread_;  // destroyed first
};

}  // namespace gpunbd::server
