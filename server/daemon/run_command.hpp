#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "server/daemon/server_context.hpp"
#include "server/daemon/service.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

// Makes the command of --run the foreground process group of the terminal. Only the foreground
// group can read from the terminal and gets SIGINT by Ctrl-C.
class ForegroundTerminal {
 public:
    ForegroundTerminal();
    ~ForegroundTerminal() { take_back(); }
    ForegroundTerminal(const ForegroundTerminal&) = delete;
    ForegroundTerminal& operator=(const ForegroundTerminal&) = delete;

    bool is_open() const { return tty_.get() >= 0; }
    // Does nothing if this process is not in the foreground.
    void give_to(pid_t group);
    void take_back();

 private:
    void set_foreground(pid_t group);

    OwnedFd tty_;
    bool lent_ = false;
};

// The process group of --run's command. A watcher process leads the group and waits for the end of
// this process. If this process is killed, the watcher ends the command and removes the socket's
// folder.
// A parent-death signal would reach only the shell of the command, and would leave the folder.
class CommandGroup {
 public:
    // If this process dies without destroying the object, the watcher removes `directory` and
    // `socket` and sends the group SIGTERM and, after two seconds, SIGKILL. Throws
    // std::runtime_error.
    CommandGroup(const std::string& directory, const std::string& socket);
    // Ends only the watcher.
    ~CommandGroup();
    CommandGroup(const CommandGroup&) = delete;
    CommandGroup& operator=(const CommandGroup&) = delete;

    pid_t id() const { return watcher_; }
    // Signals all processes of the command. Stopped processes are continued, so that they handle
    // it.
    void signal(int number) const;

 private:
    OwnedFd alive_;  // write end of a pipe; the watcher acts when it is closed
    pid_t watcher_ = -1;
};

// `--run 'COMMAND'`: the server runs until one command ends. $uri and $unixsocket tell the command
// its address.
class CaptiveCommand {
 public:
    // Creates a private directory for the socket. Throws std::runtime_error on failure.
    CaptiveCommand();
    // Kills the processes of the command, unless it has ended.
    ~CaptiveCommand();
    CaptiveCommand(const CaptiveCommand&) = delete;
    CaptiveCommand& operator=(const CaptiveCommand&) = delete;

    const std::string& socket_path() const { return socket_path_; }
    // Starts `sh -c COMMAND`; `export_name`, and whether it needs TLS, is part of $uri. Throws
    // std::runtime_error.
    void start(const std::string& command, const std::string& export_name, bool tls = false);
    // Sends SIGTERM to the shell and all its child processes.
    void terminate() const;
    // Sends SIGKILL and waits. Returns the status that a shell would report.
    int kill();
    // Does not wait. Returns true once the command has ended, with the status that a shell would
    // report. If the terminal stops the command, this process stops as well until both are
    // continued.
    bool ended(int& exit_status);
    bool running() const { return pid_ > 0; }

 private:
    std::string directory_;
    std::string socket_path_;
    std::optional<CommandGroup> group_;
    ForegroundTerminal terminal_;
    pid_t pid_ = -1;
};

// Runs the command of --run. The server ends with the command.
class RunCommand final : public Service {
 public:
    // `context.command.run` must be set.
    RunCommand(ServerContext& context, ServerControl& control);

    void start() override;
    void stop() override;  // kills it

    const std::string& socket_path() const { return command_.socket_path(); }
    void terminate() const { command_.terminate(); }
    bool running() const { return command_.running(); }
    void on_child_exit();

 private:
    ServerContext& context_;
    ServerControl& control_;
    CaptiveCommand command_;
};

}  // namespace gpunbd::server
