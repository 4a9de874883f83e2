// Makes exports on a thread of its own: one whose memory is all taken at once can need a minute,
// and meanwhile clients are accepted and signals heeded.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <optional>
#include <stop_token>
#include <thread>

#include "server/daemon/export_factory.hpp"

namespace gpunbd::server {

class ExportMaker {
 public:
    using Make = std::function<MadeExports(const std::stop_token&)>;
    struct Job {
        // On the thread of `io`, when it is this job's turn: what is to be made. Null: nothing.
        std::function<Make()> prepare;
        // On that thread, with what has been made.
        std::function<void(MadeExports)> done;
    };

    // `io` outlives it.
    explicit ExportMaker(boost::asio::io_context& io) : io_(io) {}
    // What is being made is told to stop, and waited for; nobody hears of it.
    ~ExportMaker() = default;
    ExportMaker(const ExportMaker&) = delete;
    ExportMaker& operator=(const ExportMaker&) = delete;

    // From the thread of `io`. While something is being made, one more waits: the last that was
    // asked for, however many there were.
    void ask(Job job);
    // Ends what is being made as soon as may be; nobody has a turn after it.
    void give_up();
    // That, and waits for it.
    void stop();
    bool busy() const { return thread_.joinable(); }

 private:
    void start(Job job);
    void make(const std::stop_token& stop, const Make& make);
    void finish();

    boost::asio::io_context& io_;
    Job job_;
    // While something is being made, the loop has something to wait for.
    std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work_;
    std::optional<Job> next_;
    MadeExports made_;
    std::jthread thread_;  // the first to go
};

}  // namespace gpunbd::server
