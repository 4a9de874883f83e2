// `--run 'COMMAND'`: the server lives for one command, which finds it by $uri and $unixsocket.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "server/base/command_group.hpp"
#include "server/base/foreground_terminal.hpp"

namespace gpunbd::server {

class CaptiveCommand {
 public:
    // Makes a private directory for the socket. Throws std::runtime_error where it cannot.
    CaptiveCommand();
    // Kills what still runs of a command that has not ended.
    ~CaptiveCommand();
    CaptiveCommand(const CaptiveCommand&) = delete;
    CaptiveCommand& operator=(const CaptiveCommand&) = delete;

    const std::string& socket_path() const { return socket_path_; }
    // Starts `sh -c COMMAND`; `export_name`, and whether it needs TLS, is part of $uri. Throws
    // std::runtime_error.
    void start(const std::string& command, const std::string& export_name, bool tls = false);
    // SIGTERM for the shell and all that it has started.
    void terminate() const;
    // SIGKILL, and waits for the end; the status a shell would report for it.
    int kill();
    // Does not wait: true once it has ended, with the status a shell would report for it. One that
    // was stopped from its terminal stops this process, too, until both are continued.
    bool ended(int& exit_status);
    bool running() const { return pid_ > 0; }

 private:
    std::string directory_;
    std::string socket_path_;
    std::optional<CommandGroup> group_;
    ForegroundTerminal terminal_;
    pid_t pid_ = -1;
};

}  // namespace gpunbd::server
