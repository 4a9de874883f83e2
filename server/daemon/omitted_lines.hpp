// Logs the number of omitted lines about clients (see LineLimit).
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <optional>

#include "server/base/line_limit.hpp"
#include "server/base/loop_calls.hpp"
#include "server/daemon/service.hpp"

namespace gpunbd::server {

class OmittedLines final : public Service {
 public:
    // `io` must outlive this object, and `limit` must outlive `io`.
    OmittedLines(boost::asio::io_context& io, LineLimit& limit)
        : io_(io), limit_(limit), timer_(io) {}

    void start() override;
    void stop() override;

 private:
    void report_later();

    boost::asio::io_context& io_;
    LineLimit& limit_;
    boost::asio::steady_timer timer_;
    std::optional<LoopCalls> calls_;  // unset: stopped
};

}  // namespace gpunbd::server
