// Logs the progress of long operations: one line per second for each, after the first second; on a
// terminal with a bar.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <string>

#include "storage/base/long_work.hpp"

namespace gpunbd::server {

// "provisioning cuda:0: 12 GiB of 64 GiB (18%)"; `bar` appends "[###-----------------]".
std::string progress_text(const storage::LongWork::Progress& work, bool bar);

class ProgressLog {
 public:
    // `io` outlives it.
    explicit ProgressLog(boost::asio::io_context& io);

    // Starts the periodic updates. They stop when `lasts` returns false. On the thread of `io`.
    void watch(std::function<bool()> lasts);
    void stop() { timer_.cancel(); }

 private:
    void schedule_update();
    void log_progress() const;

    boost::asio::steady_timer timer_;
    std::function<bool()> lasts_;
    bool watching_ = false;
    const bool terminal_;
};

}  // namespace gpunbd::server
