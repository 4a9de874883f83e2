// Logs the number of omitted lines about clients (see LineLimit).
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>

#include "server/base/line_limit.hpp"
#include "server/daemon/service.hpp"

namespace gpunbd::server {

class OmittedLines final : public Service {
 public:
    // `io` must outlive this object, and `limit` must outlive `io`.
    OmittedLines(boost::asio::io_context& io, LineLimit& limit) : io_(io), limit_(limit) {}

    void start() override;
    void stop() override;

 private:
    boost::asio::io_context& io_;
    LineLimit& limit_;
    // Posted handlers hold a weak reference, so they do nothing after stop().
    std::shared_ptr<boost::asio::steady_timer> timer_;
};

}  // namespace gpunbd::server
