// Logs the number of omitted lines about clients (see LineLimit).
#pragma once

#include <boost/asio/steady_timer.hpp>

#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"

namespace gpunbd::server {

class OmittedLines final : public Service {
 public:
    explicit OmittedLines(ServerContext& context) : io_(context.io), timer_(context.io) {}

    void start() override;
    void stop() override;

 private:
    void report_later();

    boost::asio::io_context& io_;
    boost::asio::steady_timer timer_;
};

}  // namespace gpunbd::server
