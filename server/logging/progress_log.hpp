// Tells in the log how far what takes long has come: a line a second for each, once it has taken
// that long; on a terminal with a bar.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <string>

#include "storage/base/long_work.hpp"

namespace gpunbd::server {

// "provisioning cuda:0: 12 GiB of 64 GiB (18%)", with `bar` behind it "[###-----------------]".
std::string progress_text(const storage::LongWork::Progress& work, bool bar);

class ProgressLog {
 public:
    // `io` outlives it.
    explicit ProgressLog(boost::asio::io_context& io);

    // Something that may take long begins; `lasts` tells whether more may come. On the thread of
    // `io`.
    void watch(std::function<bool()> lasts);
    void stop() { timer_.cancel(); }

 private:
    void look_later();
    void look() const;

    boost::asio::steady_timer timer_;
    std::function<bool()> lasts_;
    bool watching_ = false;
    const bool terminal_;
};

}  // namespace gpunbd::server
