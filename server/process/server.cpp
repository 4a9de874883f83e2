#include "server/process/server.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <set>
#include <stdexcept>
#include <utility>

#include "config/quote.hpp"
#include "config/rules.hpp"
#include "config/yaml_file.hpp"
#include "server/access/exposure.hpp"
#include "server/connection/line_limit.hpp"
#include "server/contents/kept_answer.hpp"
#include "server/exports/export_factory.hpp"
#include "server/exports/reload_report.hpp"
#include "server/keeping/open_files.hpp"
#include "server/keeping/own_program.hpp"
#include "server/listening/address_error.hpp"
#include "server/listening/nbd_uri.hpp"
#include "server/listening/tcp_address.hpp"
#include "server/listening/unix_address.hpp"
#include "server/listening/vsock_address.hpp"
#include "server/process/admin_place.hpp"
#include "server/process/finish_taking_over.hpp"
#include "server/process/keeping_path.hpp"
#include "server/process/numa.hpp"
#include "server/process/privileges.hpp"
#include "server/process/swap_use.hpp"
#include "server/process/warm_up.hpp"
#include "server/protection/locked_memory.hpp"
#include "server/protection/protection.hpp"
#include "storage/log_line.hpp"
#include "storage/signals_blocked.hpp"

namespace gpunbd::server {

namespace asio = boost::asio;

namespace {

constexpr std::size_t max_inherited = 64;  // listening sockets
constexpr auto store_patience = std::chrono::seconds(10);
constexpr auto drain_poll = std::chrono::milliseconds(20);
constexpr auto swapoff_poll = std::chrono::seconds(1);
constexpr auto swapoff_patience = 10 * swapoff_poll;  // of a supervisor, until it is told again
constexpr auto telling_interval = std::chrono::seconds(1);  // of lines about lines left out

std::uint32_t worker_count(const config::Options& options) {
    return options.threads != 0 ? options.threads
                                : std::max(1U, std::thread::hardware_concurrency());
}

storage::ChannelOptions channel_options(const config::PipelineOptions& pipeline) {
    storage::ChannelOptions channels;
    channels.chunk_size = static_cast<std::uint32_t>(pipeline.chunk_size.value_or(0));
    channels.slots = pipeline.slots;
    channels.pinned = pipeline.pinned;
    return channels;
}

bool uses_gpus(const std::vector<config::ExportOptions>& exports) {
    return std::any_of(exports.begin(), exports.end(), [](const config::ExportOptions& each) {
        return each.devices.empty() ||
               std::any_of(each.devices.begin(), each.devices.end(), config::rules::is_gpu);
    });
}

// Every connection is a descriptor, and the rest of the server has some, too.
std::uint64_t descriptors_of(const config::Options& options) {
    constexpr std::uint64_t rest = 64;
    return options.limits.connections + rest;
}

bool keeps_any(const std::vector<config::ExportOptions>& exports) {
    return std::any_of(exports.begin(), exports.end(), [](const auto& each) { return each.keep; });
}

bool keeps_all(const std::vector<config::ExportOptions>& exports) {
    return std::all_of(exports.begin(), exports.end(), [](const auto& each) { return each.keep; });
}

// In one line, however many there are.
std::string in_short(const std::vector<std::string>& names) {
    constexpr std::size_t shown = 4;
    std::string out;
    for (std::size_t i = 0; i != std::min(shown, names.size()); ++i) {
        out += (i == 0 ? "" : ", ") + config::in_quotes(names[i]);
    }
    return names.size() > shown ? fmt::format("{} and {} more", out, names.size() - shown) : out;
}

}  // namespace

Server::Server(const config::ServeCommand& command, config::Options options,
               std::shared_ptr<const admin::EventLog> events)
    : program_(own_program()),
      predecessor_(Predecessor::from_environment()),
      handed_over_(predecessor_ ? predecessor_->take_listeners() : HandedOver::from_environment()),
      turn_(Turn::in(handed_over_)),
      supervisor_(NotifySocket::from_environment()),
      watched_(Watchdog::patience_from_environment()),
      command_(command),
      options_(std::move(options)),
      protected_(options_.any_swap()),
      devices_(options_.devices, true),
      limits_{.handshake = options_.limits.handshake,
              .in_flight = options_.limits.in_flight_per_connection,
              .farewell = options_.limits.drain,
              .idle = options_.limits.idle,
              .unreachable = options_.limits.unreachable},
      slots_(options_.limits),
      io_(1),
      observed_(io_, exports_,
                [this](const std::string& name, const Observed::Change& change,
                       const Observed::Told& told) { change_export(name, change, told); }),
      signals_(io_),
      drain_timer_(io_),
      left_out_timer_(io_),
      contents_timer_(io_),
      swapoff_timer_(io_),
      events_(std::move(events)),
      maker_(io_),
      progress_(io_) {
    if (!supervisor_) return;
    store_ = DescriptorStore::from_environment(*supervisor_, handed_over_.names());
    if (!store_) return;
    calibration_.emplace(*store_, handed_over_);
    mappings_ = std::make_unique<KeptMappings>(*store_, handed_over_);
    if (predecessor_ || turn_) store_->hold_back();
    if (predecessor_) {
        devices_.set_calibration_states(predecessor_->take_calibrations());
    } else {
        contents_ = std::make_unique<KeptContents>(*store_, handed_over_);
        devices_.set_calibration_states(calibration_->states());
    }
    sockets_.emplace(*store_, handed_over_, keeps_any(options_.exports));
}

Server::~Server() {
    admin_.reset();  // before what it tells of
    for (const auto& worker : workers_) worker->stop();
    for (std::thread& thread : threads_) {
        if (thread.joinable()) thread.join();
    }
    client_lines().when_left_out(nullptr);
    tell_left_out();
    if (contents_) contents_->let_go();
}

int Server::run() {
    ::signal(SIGPIPE, SIG_IGN);
    if (const auto short_of = raise_open_files(descriptors_of(options_))) {
        spdlog::warn("{}", *short_of);
    }
    signals_.add(SIGTERM);
    signals_.add(SIGINT);
    struct sigaction hangup {};
    ::sigaction(SIGHUP, nullptr, &hangup);
    outlives_terminal_ = hangup.sa_handler == SIG_IGN;  // started by nohup
    if (command_.config_file || !outlives_terminal_) signals_.add(SIGHUP);
    signals_.add(SIGUSR1);
    signals_.add(SIGUSR2);
    if (command_.run) {
        captive_.emplace();
        signals_.add(SIGCHLD);
    }
    open_kept_devices();
    if (command_.pidfile) pidfile_.emplace(*command_.pidfile);
    tls_ = TlsContext::load(options_);
    if (const auto warning = unproved_in_tls(options_)) spdlog::warn("{}", *warning);
    open_keeping_socket(true);  // before anything is kept: what then fails would be tried again
    // A port that is taken ends the start before a GPU is touched, unless contents are kept there.
    // Clients that come before the exports are there wait in the backlog.
    open_listeners();
    if (const auto exposed = exposures(options_); !exposed.empty()) {
        throw std::runtime_error(exposed.front());
    }
    if (!predecessor_) open_admin(true);
    if (uses_gpus(options_.exports)) {
        // To make what is missing in /dev, NVIDIA's driver runs a set-user-ID program.
        std::string why_none;
        devices_.gpus(why_none);
    }
    give_up_new_privileges();
    if (predecessor_) take_over_contents();
    make_first_exports();
    run_events();  // from here on signals are heeded, and soon clients accepted
    if (failure_) std::rethrow_exception(failure_);
    if (captive_ && captive_->running()) exit_code_ = captive_->kill();
    print_trace();
    ignore_signals();
    return exit_code_;
}

// What is left ends by itself, and once signals_ is gone each of them would kill it.
void Server::ignore_signals() {
    const storage::SignalsBlocked blocked;  // between the one and the other
    for (const int each : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2}) {
        signals_.remove(each);
        ::signal(each, SIG_IGN);
    }
}

void Server::tell_supervisor(std::string_view message) const {
    if (!supervisor_) return;
    if (const auto wrong = supervisor_->send(message)) spdlog::warn("{}", *wrong);
}

// What has no memory in the midst of an event loses that event and nothing else; what others wait
// for is asked for again.
void Server::run_events() {
    for (;;) {
        try {
            if (!waits_for_signal_) wait_for_signal();
            if (draining_ && !waits_for_drain_) drained_or_wait();
            if (ends_after_swapoff_ && !draining_ && !waits_for_swapoff_) wait_for_swapoff();
            if (watchdog_) watchdog_->go_on();
            io_.run();
            return;
        } catch (const std::exception& error) {
            spdlog::error("an event of the main thread was lost: {}", error.what());
        }
    }
}

void Server::tell_progress() {
    progress_.watch([this] { return maker_.busy() || draining_; });
}

// Beside the end of another server, if there is one: of its contents nothing is touched before.
void Server::open_kept_devices() {
    if (contents_) contents_->open_devices(options_.exports, devices_);
    if (turn_) await_turn();
    if (!devices_.lacks_mapping() || !mappings_) return;
    // The other one had it all, or what it has left still has.
    devices_.close();
    mappings_->undo_now();
}

void Server::await_turn() {
    if (!turn_->wait())
        throw std::runtime_error(
            "nobody wants this server any more: it was started beside the end of another");
    if (!store_) return;
    if (const auto wrong = store_->go_on(store_patience)) spdlog::error("{}", *wrong);
}

void Server::make_first_exports() {
    maker_.ask({.prepare = [this]() -> ExportMaker::Make {
                    return [this](const std::stop_token& stop) {
                        return make_exports(options_.exports, devices_, {}, volume_life(stop));
                    };
                },
                .done =
                    [this](MadeExports made) {
                        try {
                            if (!draining_) start_serving(std::move(made));
                        } catch (...) {
                            failure_ = std::current_exception();
                            io_.stop();
                        }
                    }});
    tell_progress();
}

VolumeLife Server::volume_life(const std::stop_token& stop) {
    return {.stop = stop, .disposal = &disposal_, .contents = contents_.get()};
}

void Server::start_serving(MadeExports made) {
    if (!made.problems.empty()) {
        for (std::size_t i = 0; i + 1 < made.problems.size(); ++i) {
            spdlog::error("{}", made.problems[i]);
        }
        throw std::runtime_error(made.problems.back());
    }
    exports_.replace(std::move(made.exports));
    refused_ = std::move(made.refused);
    settle_contents();
    start_workers();
    if (protected_) lock_memory(*exports_.snapshot());
    if (predecessor_) take_turn();
    client_lines().when_left_out([this] { asio::post(io_, [this] { tell_left_out_later(); }); });
    for (const auto& listener : listeners_) {
        listener->start([this](int fd, Peer peer) { accepted(fd, std::move(peer)); });
    }
    for (Predecessor::Client& client : std::exchange(clients_, {})) take_over(std::move(client));
    if (pidfile_) pidfile_->publish();
    if (const auto unknown = handed_over_.names(); !unknown.empty()) {
        spdlog::warn("nothing here knows what the supervisor keeps as {}; it stays there",
                     in_short(unknown));
    }
    Observed::Workers observed;
    for (const auto& worker : workers_) observed.push_back(worker.get());
    observed_.serves(std::move(observed));
    if (captive_) {
        captive_->start(*command_.run, options_.exports.front().name, first_export_needs_tls());
    } else {
        announce();
    }
    start_watchdog();
    tell_ready();
    finish_taking_over(workers_, *exports_.snapshot(), mappings_.get());
}

void Server::tell_ready() {
    if (store_ && keeps_any(options_.exports)) {
        if (const auto wrong = lifeline_.hand_over(*supervisor_)) spdlog::warn("{}", *wrong);
    }
    tell_supervisor("READY=1");
}

void Server::open_listeners() {
    std::vector<OwnedFd> inherited = handed_over_.take_sockets();
    if (inherited.size() > max_inherited) {
        throw std::runtime_error(
            fmt::format("LISTEN_FDS: {} sockets are handed over; at most {} can be used",
                        inherited.size(), max_inherited));
    }
    if (captive_) {
        config::UnixListener own;
        own.path = captive_->socket_path();
        listeners_.push_back(Listener::unix_socket(io_, own));
    } else if (!inherited.empty()) {
        sockets_inherited_ = true;
        for (OwnedFd& fd : inherited) {
            listeners_.push_back(Listener::inherited(io_, fd.release()));
        }
    } else {
        for (const auto& tcp : options_.tcp) open_tcp(tcp);
        for (const auto& path : options_.unix_sockets) open_unix(path);
        for (const auto& vsock : options_.vsock) {
            open_kept(name_of(vsock), [&] { return Listener::vsock(io_, vsock); });
        }
    }
    if (sockets_) sockets_->forget_the_rest();
}

// What an earlier server had there, or else what `open` makes, for later ones to have.
template <typename Open>
void Server::open_kept(const std::string& address, Open open) {
    if (sockets_) {
        if (auto fd = sockets_->take(address)) {
            listeners_.push_back(Listener::taken_over(io_, fd->release(), address));
            return;
        }
    }
    listeners_.push_back(open());
    if (sockets_) sockets_->keep(address, listeners_.back()->descriptor());
}

void Server::open_unix(const config::UnixListener& options) {
    const auto open = [&] {
        return Listener::unix_socket(io_, options, sockets_ && sockets_->outlive());
    };
    struct stat file {};
    // Without its file nobody finds the way to it.
    if (sockets_ && ::lstat(options.path.c_str(), &file) != 0) sockets_->take(name_of(options));
    open_kept(name_of(options), open);
}

void Server::open_tcp(const config::TcpListener& tcp) {
    try {
        open_kept(name_of(tcp), [&] { return Listener::tcp(io_, tcp); });
    } catch (const AddressError& error) {
        if (!tcp.optional || error.kind != AddressError::Kind::absent) throw;
        spdlog::warn("{}: left out", error.what());
    }
}

std::vector<std::string> Server::exposures(const config::Options& options) const {
    std::vector<std::string> lines;
    const auto open = open_to_all(options);
    if (!open) return lines;
    for (const auto& listener : listeners_) {
        const auto where = listener->public_address();
        if (!where) continue;
        if (options.insecure) {
            spdlog::warn("{}", insecure_text(*where, *open));
        } else {
            lines.push_back(exposure_text(*where, *open));
        }
    }
    return lines;
}

void Server::start_workers() {
    const std::uint32_t count = worker_count(options_);
    const std::uint64_t in_flight = options_.limits.in_flight / count;
    const std::vector<int> nodes = devices_.numa_nodes();
    const storage::SignalsBlocked blocked;
    for (std::uint32_t i = 0; i != count; ++i) {
        workers_.push_back(std::make_unique<Worker>(channel_options(options_.pipeline), in_flight,
                                                    options_.trace));
        const int node = nodes.empty() ? -1 : nodes[i % nodes.size()];
        threads_.emplace_back([worker = workers_.back().get(), node] {
            stay_on_node(node);
            worker->run();
        });
        ::pthread_setname_np(threads_.back().native_handle(), fmt::format("worker {}", i).c_str());
    }
}

void Server::lock_memory(const ExportRegistry::Exports& exports) {
    for (std::future<void>& each : warm_up(workers_, exports)) each.get();
    if (const auto wrong = lock_all_memory()) throw std::runtime_error("swap: " + *wrong);
    spdlog::info("swap: {}", what_protects());
}

void Server::start_watchdog() {
    if (!supervisor_ || !watched_) return;
    watchdog_.emplace(io_, *watched_, workers_, [this] { tell_supervisor("WATCHDOG=1"); });
    watchdog_->go_on();
}

void Server::announce() {
    const std::optional<std::string> uri =
        listeners_.empty()
            ? std::nullopt
            : listeners_.front()->uri(options_.exports.front().name, first_export_needs_tls());
    if (uri) {
        spdlog::info("ready: {} (try: nbdinfo {})", *uri, shell_word(*uri));
    } else {
        spdlog::info("ready");
    }
}

bool Server::first_export_needs_tls() const {
    return options_.tls.mode == config::TlsMode::required || options_.exports.front().tls_required;
}

// Takes the descriptor, whatever happens.
void Server::accepted(int fd, Peer peer) {
    try {
        ConnectionSlots::Answer answer = slots_.enter(peer);
        if (!answer.slot) {
            observed_.refused(answer.limit);
            ClientLine(spdlog::level::warn)
                .with("peer", peer.text())
                .say("{}: refused: {}", peer.text(), answer.refusal);
            ::close(fd);
            return;
        }
        observed_.accepted();
        if (answer.evicted) answer.evicted->worker->evict(answer.evicted);
        least_busy_worker().serve(fd, std::move(peer), exports_, limits_, std::move(answer.slot),
                                  tls_);
    } catch (const std::exception& error) {
        ::close(fd);
        if (client_lines().take()) spdlog::error("a connection is lost: {}", error.what());
    }
}

Worker& Server::least_busy_worker() const {
    return **std::min_element(workers_.begin(), workers_.end(), [](const auto& a, const auto& b) {
        return a->connections() < b->connections();
    });
}

void Server::wait_for_signal() {
    signals_.async_wait([this](boost::system::error_code error, int signal) {
        waits_for_signal_ = false;
        if (error) return;
        on_signal(signal);
        wait_for_signal();
    });
    waits_for_signal_ = true;
}

void Server::on_signal(int signal) {
    if (signal == SIGCHLD) {
        if (captive_ && captive_->ended(exit_code_)) begin_drain();
    } else if (signal == SIGHUP) {
        on_hangup();
    } else if (signal == SIGUSR1) {
        print_trace();
    } else if (signal == SIGUSR2) {
        begin_upgrade();
    } else if (draining_ || ends_after_swapoff_) {
        begin_drain();
        drain_until_ = std::chrono::steady_clock::now();  // told twice: at once
    } else {
        end();
    }
}

// One signal has two meanings: read the file again, and: the terminal has been closed.
void Server::on_hangup() {
    // A terminal that closes may send it more than once.
    if (draining_ || ends_after_swapoff_) return;
    if (!command_.config_file) {
        spdlog::info("SIGHUP: there is no configuration file to read again, so the server ends");
        end();
    } else if (terminal_.gone() && !outlives_terminal_) {
        spdlog::info("SIGHUP: the terminal has been closed, so the server ends");
        end();
    } else if (upgrade_) {
        reload_after_upgrade_ = true;
    } else {
        reload();
    }
}

void Server::end() {
    if (captive_) captive_->terminate();
    if (protected_) {
        if (const auto devices = swapped_to(*exports_.snapshot()); !devices.empty()) {
            spdlog::warn(
                "the server ends when this machine does not swap to it any more: swapoff {}; a "
                "second signal ends it at once, and all that is swapped out there is lost",
                fmt::join(devices, " "));
            return wait_for_swapoff();
        }
    }
    begin_drain();
}

void Server::wait_for_swapoff() {
    ends_after_swapoff_ = true;
    tell_supervisor(fmt::format("STATUS=waiting for swapoff\nEXTEND_TIMEOUT_USEC={}",
                                std::chrono::microseconds(swapoff_patience).count()));
    swapoff_timer_.expires_after(swapoff_poll);
    swapoff_timer_.async_wait([this](boost::system::error_code error) {
        waits_for_swapoff_ = false;
        if (error || draining_) return;
        if (!swapped_to(*exports_.snapshot()).empty()) return wait_for_swapoff();
        spdlog::info("this machine does not swap to it any more");
        begin_drain();
    });
    waits_for_swapoff_ = true;
}

void Server::reload() {
    tell_supervisor(reloading_message());
    if (maker_.busy()) {
        spdlog::info("SIGHUP: the file is read once the exports that are being made are there");
    }
    file_asked_ = true;
    make_anew();
}

// Of those who ask the maker only the last one waits, so each asks for what the others want, too.
void Server::make_anew(const Observed::Told& told) {
    const auto reload = std::make_shared<Reload>();
    maker_.ask({.prepare = [this, reload] { return prepare(reload); },
                .done =
                    [this, reload, told](MadeExports made) {
                        const std::string problem =
                            made.problems.empty() ? "" : made.problems.front();
                        finish(*reload, std::move(made));
                        if (told) told(problem);
                    }});
    tell_progress();
}

void Server::refuse_reload(const std::vector<std::string>& problems) const {
    for (const std::string& problem : problems) spdlog::error("{}", problem);
    spdlog::error("SIGHUP: the configuration stays as it was");
    tell_supervisor("READY=1");
}

// False: the configuration has a problem, and stays as it was.
bool Server::load(Reload& reload) const {
    config::Loaded loaded = config::load_file(*command_.config_file);
    if (!loaded.problems.empty()) {
        std::vector<std::string> problems;
        problems.reserve(loaded.problems.size());
        for (const auto& problem : loaded.problems) problems.push_back(problem.text());
        refuse_reload(problems);
        return false;
    }
    command_.overrides.apply_to(loaded.options);
    if (const auto misfit = config::rules::swap_misfit(loaded.options)) {
        refuse_reload({misfit->what});
        return false;
    }
    if (loaded.options.any_swap() && !protected_) {
        refuse_reload({"swap: a server protects itself at its start alone; start it anew"});
        return false;
    }
    try {
        reload.tls = TlsContext::load(loaded.options);
        if (options_.admin.tcp.tls && loaded.options.admin.tcp.tls) {
            reload.admin_tls = admin_tls(loaded.options);
        }
    } catch (const std::exception& error) {
        refuse_reload({error.what()});
        return false;
    }
    if (const auto exposed = exposures(loaded.options); !exposed.empty()) {
        refuse_reload(exposed);
        return false;
    }
    reload.options = std::move(loaded.options);
    return true;
}

ExportMaker::Make Server::prepare(const std::shared_ptr<Reload>& reload) {
    if (draining_) return nullptr;
    reload->from_file = std::exchange(file_asked_, false);
    if (!reload->from_file) {
        reload->options = options_;
        reload->tls = tls_;
    } else if (!load(*reload)) {
        return nullptr;
    }
    reload->before = exports_.snapshot();
    return [this, reload](const std::stop_token& stop) {
        devices_.set_options(reload->options.devices);
        return make_exports(reload->options.exports, devices_, *reload->before, volume_life(stop));
    };
}

void Server::finish(const Reload& reload, MadeExports made) {
    if (draining_) return;
    if (!made.problems.empty()) {
        if (reload.from_file) {
            refuse_reload(made.problems);
        } else {
            for (const std::string& problem : made.problems) spdlog::error("{}", problem);
        }
        devices_.set_options(options_.devices);
        made.exports.clear();
        settle_contents();
        return;
    }
    const auto warned = unproved_in_tls(options_);
    if (protected_) warm_up(workers_, made.exports);  // a connection says what does not open
    exports_.replace(std::move(made.exports));
    refused_ = std::move(made.refused);
    for (const auto& worker : workers_) worker->look_at_access();
    options_.exports = reload.options.exports;
    options_.devices = reload.options.devices;
    options_.tls = reload.options.tls;
    options_.keeping.grace = reload.options.keeping.grace;
    tls_ = reload.tls;
    if (admin_ && reload.admin_tls) admin_->renew_tls(reload.admin_tls);
    settle_contents();
    finish_taking_over(workers_, *exports_.snapshot(), mappings_.get());
    open_keeping_socket(false);
    const auto warning = unproved_in_tls(options_);
    if (warning && warning != warned) spdlog::warn("{}", *warning);
    for (const ReloadLine& line : report_exports(*reload.before, *exports_.snapshot())) {
        storage::LogLine(line.warning ? spdlog::level::warn : spdlog::level::info)
            .with("export", line.name)
            .say("{}", line.text);
    }
    std::vector<std::string> waiting = keys_that_wait(options_, reload.options);
    for (const std::string& id : devices_.opened_otherwise()) {
        waiting.push_back("devices: " + id);
    }
    if (!waiting.empty()) {
        spdlog::warn("reload: what is changed in {} takes effect at the next start",
                     fmt::join(waiting, ", "));
    }
    if (!reload.from_file) return;
    spdlog::info("SIGHUP: {} exports are offered now", options_.exports.size());
    tell_ready();
}

void Server::change_export(const std::string& name, const Observed::Change& change,
                           const Observed::Told& told) {
    if (draining_ || upgrade_) return told("the server is ending, or another takes its place");
    if (workers_.empty() || maker_.busy()) return told("exports are being made; try again later");
    const auto found =
        std::find_if(options_.exports.begin(), options_.exports.end(),
                     [&](const config::ExportOptions& each) { return each.name == name; });
    if (found == options_.exports.end()) return told("there is no such export any more");
    change(*found);
    make_anew(told);
}

void Server::settle_contents() {
    for (const MadeExports::Refused& each : refused_) spdlog::error("{}", each.why);
    if (store_) {
        if (keeps_any(options_.exports)) calibration_->keep(devices_.calibration_states());
        // They hold the memory of all exports, of which the next server needs what is not kept.
        mappings_->keep(keeps_all(options_.exports) ? devices_.mapping_files()
                                                    : std::vector<int>{});
    }
    look_at_contents();
}

void Server::open_keeping_socket(bool starting) {
    if (!contents_ || keeping_socket_) return;
    if (!keeps_any(options_.exports) && contents_->summaries().empty()) return;
    const auto answer = [this](const std::string& request) {
        return answer_about_contents(request);
    };
    const auto& wanted = options_.keeping.socket;
    try {
        const std::optional<std::string> path = wanted ? wanted : own_keeping_path();
        if (path) keeping_socket_ = std::make_unique<KeepingSocket>(io_, *path, answer);
        if (path) return;
        spdlog::warn(
            "gpunbd kept cannot ask this server: there is no $XDG_RUNTIME_DIR for its socket; "
            "give --keeping-socket");
    } catch (const std::runtime_error& error) {
        if (wanted && starting) throw;
        spdlog::warn("gpunbd kept cannot ask this server: {}; give --keeping-socket", error.what());
    }
}

void Server::open_admin(bool starting) {
    auto endpoint = std::make_unique<admin::Endpoint>(observed_, events_);
    try {
        open_admin_place(*endpoint, options_);
        if (!endpoint->listens()) return;
        endpoint->start();
        admin_ = std::move(endpoint);
    } catch (const std::runtime_error& error) {
        if (starting) throw;
        spdlog::warn("nobody can ask what this server does: {}", error.what());
    }
}

// While exports are made it is not known which of the contents they take.
std::optional<std::string> Server::answer_about_contents(const std::string& request) {
    if (maker_.busy()) return std::nullopt;
    KeptAnswer answer = answer_about_kept(*contents_, request);
    if (answer.dropped) {
        spdlog::warn("as gpunbd kept has asked: {}", config::in_quotes(request));
        if (!refused_.empty()) make_anew();
    }
    return std::move(answer.text);
}

void Server::look_at_contents() {
    if (!contents_) return;
    if (maker_.busy() || upgrade_) return;  // its end brings it back here
    std::vector<KeptContents::Offered> offered;
    const auto exports = exports_.snapshot();
    for (const auto& each : *exports) {
        offered.push_back({each->info.name, each->options.keep, each->volume});
    }
    for (const MadeExports::Refused& each : refused_) offered.push_back({each.name, true, nullptr});
    const auto now = KeptContents::Clock::now();
    const auto next = contents_->settle(offered, options_.keeping.grace, now);
    if (!next) return;
    contents_timer_.expires_at(*next);
    contents_timer_.async_wait([this](boost::system::error_code error) {
        if (!error && !draining_) look_at_contents();
    });
}

void Server::tell_left_out_later() {
    left_out_timer_.expires_after(telling_interval);
    left_out_timer_.async_wait([](boost::system::error_code error) {
        if (!error) tell_left_out();
    });
}

void Server::print_trace() {
    std::vector<const Trace*> traces;
    for (const auto& worker : workers_) {
        if (worker->trace() != nullptr) traces.push_back(worker->trace());
    }
    if (!traces.empty()) spdlog::info("trace of all workers\n{}", describe_traces(traces));
}

// --- another server in place of this one

std::string Server::why_no_upgrade() const {
    if (captive_) return "a command that --run has started ends with this server";
    if (!contents_) {
        return "nobody keeps its memory, which ends with it: start it by gpunbd keep, or by "
               "systemd with FileDescriptorStoreMax=";
    }
    if (workers_.empty() || maker_.busy()) return "its exports are being made; try again later";
    const auto exports = exports_.snapshot();
    const auto outlives = [](const auto& each) { return each->contents_outlive_server(); };
    if (std::none_of(exports->begin(), exports->end(), outlives)) {
        return "no export has keep: true, so that all memory ends with it";
    }
    if (!swapped_to(*exports).empty() && !std::all_of(exports->begin(), exports->end(), outlives)) {
        return "this machine swaps to it, and not all of its exports have keep: true";
    }
    for (const auto& each : *exports) {
        for (const storage::Device* device : each->volume->devices()) {
            if (!device->exclusive()) continue;
            return fmt::format("{} can be had by one server at a time; restart this one",
                               device->info().id);
        }
    }
    return {};
}

void Server::begin_upgrade() {
    if (draining_ || ends_after_swapoff_) return;
    if (upgrade_) {
        spdlog::info("SIGUSR2: another server is being started already");
        return;
    }
    if (const std::string why = why_no_upgrade(); !why.empty()) {
        spdlog::warn("SIGUSR2: nothing can be handed over to another server: {}", why);
        return;
    }
    spdlog::info("SIGUSR2: starting {} to serve in place of this process", program_);
    upgrade_ = std::make_shared<Upgrade>(
        Upgrade::Parts{io_, workers_, listeners_, *contents_, *supervisor_},
        [this] {
            keeping_socket_.reset();
            if (admin_place_is_shared(options_.admin)) admin_.reset();
        },
        [this](const std::string& why_not) { after_upgrade(why_not); });
    try {
        upgrade_->start({.program = program_,
                         .arguments = own_arguments(),
                         .notify_address = supervisor_->address(),
                         .capacity = store_->capacity(),
                         .watched = watched_},
                        first_messages());
    } catch (const std::exception& error) {
        upgrade_->give_up();
        after_upgrade(error.what());
    }
}

std::vector<UpgradeMessage> Server::first_messages() {
    std::vector<UpgradeMessage> messages;
    for (const auto& listener : listeners_) {
        const std::string name =
            sockets_inherited_ ? "inherited" : KeptSockets::name(listener->where());
        messages.push_back(
            {.kind = MessageKind::listener,
             .body = text_body(name),
             .descriptor = OwnedFd(::fcntl(listener->descriptor(), F_DUPFD_CLOEXEC, 0))});
        if (messages.back().descriptor.get() < 0)
            throw std::runtime_error("no descriptors are left");
    }
    std::set<std::string> devices;
    const auto exports = exports_.snapshot();
    for (const auto& each : *exports) {
        for (const storage::Device* device : each->volume->devices()) {
            devices.insert(device->info().identity);
        }
    }
    for (const std::string& device : devices) {
        messages.push_back({.kind = MessageKind::device, .body = text_body(device)});
    }
    for (auto& [device, found] : devices_.calibration_states()) {
        messages.push_back({.kind = MessageKind::calibration,
                            .body = encode_calibration({.device = device, .found = found})});
    }
    return messages;
}

void Server::after_upgrade(const std::string& why_not) {
    if (why_not.empty()) {
        if (pidfile_) pidfile_->leave();
        watchdog_.reset();  // it is the other one that is watched
        draining_ = true;
        observed_.drains();
        drain_until_ = std::chrono::steady_clock::now() + options_.limits.drain;
        for (const auto& listener : listeners_) listener->stop();
        drained_or_wait();
        return;
    }
    spdlog::error("SIGUSR2: the other server does not come up, and this one goes on: {}", why_not);
    // It is Upgrade that calls this.
    asio::post(io_, [this, over = std::exchange(upgrade_, nullptr)] {
        look_at_contents();
        if (!admin_) open_admin(false);
    });
    if (std::exchange(reload_after_upgrade_, false)) reload();
}

// What takes long comes first: until the predecessor is told, it serves.
void Server::take_over_contents() {
    if (!store_) throw std::runtime_error("there is no supervisor that keeps what is taken over");
    for (const std::string& identity : predecessor_->devices())
        devices_.open_hardware(identity, "");
    Predecessor::Rest rest = predecessor_->take_rest();
    for (auto& each : rest.contents) {
        store_->knows(each.name);
        handed_over_.add(each.name, std::move(each.descriptor));
    }
    clients_ = std::move(rest.clients);
    contents_ = std::make_unique<KeptContents>(*store_, handed_over_);
    contents_->rest();
}

void Server::take_turn() {
    if (!refused_.empty()) throw std::runtime_error(refused_.front().why);
    predecessor_->wait_for_turn();
    if (const auto wrong = store_->go_on(store_patience)) spdlog::error("{}", *wrong);
    contents_->go_on();
    open_keeping_socket(false);
    open_admin(false);
    spdlog::info("serving in place of an earlier process, with {} connections of it",
                 clients_.size());
}

void Server::take_over(Predecessor::Client client) {
    const int fd = client.socket.release();
    try {
        Peer peer = peer_of(fd, client.state->listener);
        ConnectionSlots::Answer answer = slots_.enter(peer);
        if (!answer.slot) throw std::runtime_error(answer.refusal);
        answer.slot->served();  // at once: of handshakes only so many may be under way
        least_busy_worker().serve(fd, std::move(peer), exports_, limits_, std::move(answer.slot),
                                  nullptr, std::move(client.state));
    } catch (const std::exception& error) {
        ::close(fd);
        spdlog::warn("a connection of the earlier process is closed: {}", error.what());
    }
}

void Server::begin_drain() {
    if (draining_) return;
    if (upgrade_) std::exchange(upgrade_, nullptr)->give_up();
    draining_ = true;
    observed_.drains();
    drain_until_ = std::chrono::steady_clock::now() + options_.limits.drain;
    spdlog::info("stopping: answering what is in flight");
    tell_supervisor("STOPPING=1");
    maker_.give_up();
    keeping_socket_.reset();
    for (const auto& listener : listeners_) listener->stop();
    for (const auto& worker : workers_) worker->drain_sessions();
    drained_or_wait();
}

void Server::drained_or_wait() {
    const bool no_time = std::chrono::steady_clock::now() >= drain_until_;
    std::uint64_t connections = 0;
    for (const auto& worker : workers_) connections += worker->connections();
    const bool drained = connections == 0;
    if (!draining_work_) {
        draining_work_.emplace("draining", "", connections, "connections");
        draining_total_ = connections;
        tell_progress();
    }
    draining_work_->set_done(draining_total_ - std::min(draining_total_, connections));
    // The command's exit status is ours.
    if (drained && (no_time || !captive_ || !captive_->running())) {
        signals_.cancel();
        progress_.stop();
        io_.stop();
        return;
    }
    if (no_time) {
        for (const auto& worker : workers_) worker->cut_sessions();
    }
    drain_timer_.expires_after(drain_poll);
    drain_timer_.async_wait([this](boost::system::error_code error) {
        waits_for_drain_ = false;
        if (!error) drained_or_wait();
    });
    waits_for_drain_ = true;
}

}  // namespace gpunbd::server
