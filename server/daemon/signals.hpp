// Handles the signals of the server.
#pragma once

#include <boost/asio/signal_set.hpp>

#include "server/base/controlling_terminal.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/server_control.hpp"
#include "server/daemon/service.hpp"

namespace gpunbd::server {

class Signals final : public Service {
 public:
    Signals(ServerContext& context, ServerControl& control);

    void open() override;
    void resume() override;
    void stop() override;

 private:
    void on_signal(int signal);
    void on_hangup();

    ServerContext& context_;
    ServerControl& control_;
    boost::asio::signal_set signals_;
    const ControllingTerminal terminal_;
    bool outlives_terminal_ = false;
    bool waiting_ = false;
};

}  // namespace gpunbd::server
