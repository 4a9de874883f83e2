// Handles the signals of the server.
#pragma once

#include <boost/asio/signal_set.hpp>
#include <functional>

#include "server/base/controlling_terminal.hpp"
#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"

namespace gpunbd::server {

class Signals final : public Service {
 public:
    struct Actions {
        std::function<void()> end;           // SIGTERM, SIGINT, or the terminal was closed
        std::function<void()> end_now;       // SIGTERM or SIGINT again
        std::function<void()> reload;        // SIGHUP
        std::function<void()> hand_over;     // SIGUSR2
        std::function<void()> log_trace;     // SIGUSR1
        std::function<void()> child_exited;  // SIGCHLD
    };
    Signals(ServerContext& context, Actions actions);

    void open() override;
    void resume() override;
    void stop() override;

 private:
    void on_signal(int signal);
    void on_hangup();

    ServerContext& context_;
    const Actions actions_;
    boost::asio::signal_set signals_;
    const ControllingTerminal terminal_;
    bool outlives_terminal_ = false;
    bool waiting_ = false;
};

}  // namespace gpunbd::server
