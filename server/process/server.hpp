// The server's life: devices and exports, workers, listeners, signals; reload and drain.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "config/command_line.hpp"
#include "server/admin/endpoint.hpp"
#include "server/connection/connection_slots.hpp"
#include "server/contents/kept_calibration.hpp"
#include "server/contents/kept_contents.hpp"
#include "server/contents/kept_mappings.hpp"
#include "server/exports/device_registry.hpp"
#include "server/exports/export_maker.hpp"
#include "server/exports/export_registry.hpp"
#include "server/exports/volume_disposal.hpp"
#include "server/keeping/descriptor_store.hpp"
#include "server/keeping/handed_over.hpp"
#include "server/keeping/lifeline.hpp"
#include "server/keeping/notify_socket.hpp"
#include "server/keeping/turn.hpp"
#include "server/listening/listener.hpp"
#include "server/process/captive_command.hpp"
#include "server/process/controlling_terminal.hpp"
#include "server/process/keeping_socket.hpp"
#include "server/process/kept_sockets.hpp"
#include "server/process/observed.hpp"
#include "server/process/pidfile.hpp"
#include "server/process/progress_log.hpp"
#include "server/process/watchdog.hpp"
#include "server/tls/tls_context.hpp"
#include "server/upgrade/predecessor.hpp"
#include "server/upgrade/upgrade.hpp"
#include "server/worker/worker.hpp"

namespace gpunbd::server {

class Server {
 public:
    // `options` are what `command` and its file say together.
    // `events` are those of the log.
    Server(const config::ServeCommand& command, config::Options options,
           std::shared_ptr<const admin::EventLog> events);
    ~Server();

    // Serves until it is told to stop; the process's exit code. Throws std::runtime_error with one
    // clear line where it cannot start.
    int run();

 private:
    void tell_supervisor(std::string_view message) const;
    void tell_ready();
    void run_events();
    void open_kept_devices();
    void await_turn();
    void make_first_exports();
    void start_serving(MadeExports made);
    void open_listeners();
    template <typename Open>
    void open_kept(const std::string& address, Open open);
    void open_tcp(const config::TcpListener& tcp);
    void open_unix(const config::UnixListener& options);
    // Where strangers could open exports, by these options and the listeners that there are: a line
    // for each; a warning where that is wished for.
    std::vector<std::string> exposures(const config::Options& options) const;
    void start_workers();
    void start_watchdog();
    void announce();
    bool first_export_needs_tls() const;
    void accepted(int fd, Peer peer);
    void wait_for_signal();
    void on_signal(int signal);
    void ignore_signals();
    void on_hangup();
    void end();
    void reload();
    // From the file, where that was asked for; else from the options as they are.
    // `told`: once they are made; may be empty.
    void make_anew(const Observed::Told& told = {});
    void refuse_reload(const std::vector<std::string>& problems) const;
    struct Reload {
        config::Options options;
        std::shared_ptr<const TlsContext> tls;
        std::shared_ptr<const TlsContext> admin_tls;  // null: it stays
        std::shared_ptr<const ExportRegistry::Exports> before;
        bool from_file = false;
    };
    ExportMaker::Make prepare(const std::shared_ptr<Reload>& reload);
    bool load(Reload& reload) const;
    void finish(const Reload& reload, MadeExports made);
    VolumeLife volume_life(const std::stop_token& stop);
    // Until the configuration is read again.
    void change_export(const std::string& name, const Observed::Change& change,
                       const Observed::Told& told);
    // What is under way may take long.
    void tell_progress();
    void settle_contents();
    void begin_upgrade();
    // Empty: it can be done.
    std::string why_no_upgrade() const;
    void after_upgrade(const std::string& why_not);
    std::vector<UpgradeMessage> first_messages();
    // Of a server in whose place this one is started.
    void take_over_contents();
    void take_turn();
    void take_over(Predecessor::Client client);
    Worker& least_busy_worker() const;
    // That, or time has passed.
    void look_at_contents();
    // Where contents are kept. While starting, a path that was asked for has to be had.
    void open_keeping_socket(bool starting);
    // Where it is asked what it does. While starting, a place that was asked for has to be had.
    void open_admin(bool starting);
    std::optional<std::string> answer_about_contents(const std::string& request);
    void print_trace();
    void lock_memory(const ExportRegistry::Exports& exports);
    void wait_for_swapoff();
    void begin_drain();
    void drained_or_wait();
    void tell_left_out_later();

    const std::string program_;  // as it was called: later another may lie there
    const std::unique_ptr<Predecessor> predecessor_;  // null: it is started in nobody's place
    HandedOver handed_over_;          // first: what else is opened is not taken for handed over
    const std::optional<Turn> turn_;  // unset: it has come
    const std::optional<NotifySocket> supervisor_;            // unset: nobody wants to know
    const std::optional<std::chrono::microseconds> watched_;  // how patient it is
    Lifeline lifeline_;  // before devices, which are slow to close
    const config::ServeCommand command_;
    config::Options options_;
    const bool protected_;  // its memory is locked before the first client
    // Null: nobody keeps anything.
    std::unique_ptr<DescriptorStore> store_;
    std::optional<KeptSockets> sockets_;  // where contents outlive the server
    DeviceRegistry devices_;  // once there are listeners: for the thread of maker_ alone
    std::unique_ptr<KeptContents> contents_;
    std::optional<KeptCalibration> calibration_;
    std::unique_ptr<KeptMappings> mappings_;  // null: nobody keeps anything
    VolumeDisposal disposal_;                 // gives volumes back while there are devices
    ExportRegistry exports_;
    std::shared_ptr<const TlsContext> tls_;  // of who connects from now on; null: off
    SessionLimits limits_;
    ConnectionSlots slots_;  // outlives the connections
    boost::asio::io_context io_;
    Observed observed_;
    boost::asio::signal_set signals_;
    boost::asio::steady_timer drain_timer_;
    boost::asio::steady_timer left_out_timer_;
    boost::asio::steady_timer contents_timer_;
    boost::asio::steady_timer swapoff_timer_;
    std::optional<CaptiveCommand> captive_;
    std::optional<Pidfile> pidfile_;
    std::unique_ptr<KeepingSocket> keeping_socket_;
    const std::shared_ptr<const admin::EventLog> events_;
    std::unique_ptr<admin::Endpoint> admin_;  // null: nobody can ask
    std::vector<std::unique_ptr<Listener>> listeners_;
    std::vector<std::unique_ptr<Worker>> workers_;  // before exports and devices go
    std::vector<std::thread> threads_;
    std::optional<Watchdog> watchdog_;
    ExportMaker maker_;
    ProgressLog progress_;
    std::optional<storage::LongWork> draining_work_;
    std::uint64_t draining_total_ = 0;          // connections, when that began
    std::vector<Predecessor::Client> clients_;  // of the predecessor, until it is our turn
    std::shared_ptr<Upgrade> upgrade_;          // while it is under way
    bool reload_after_upgrade_ = false;
    bool sockets_inherited_ = false;
    const ControllingTerminal terminal_;
    bool outlives_terminal_ = false;
    bool waits_for_signal_ = false;
    bool file_asked_ = false;  // that it be read again
    bool draining_ = false;
    bool waits_for_drain_ = false;
    bool ends_after_swapoff_ = false;
    bool waits_for_swapoff_ = false;
    std::exception_ptr failure_;  // of the start
    std::vector<MadeExports::Refused> refused_;
    std::chrono::steady_clock::time_point drain_until_;
    int exit_code_ = 0;
};

}  // namespace gpunbd::server
