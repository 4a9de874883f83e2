// Complete sessions with a worker's components on this thread, over socket pairs. The input is a
// script of client actions and device faults. At the end every compliant client has been answered,
// and no page, budget or staging memory is still in use.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <csignal>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "server/nbd/session.hpp"
#include "server/nbd/worker_context.hpp"
#include "storage/devices/faulty/faulty_device.hpp"
#include "tests/fuzz/require.hpp"
#include "tests/fuzz/script.hpp"
#include "tests/fuzz/scripted_client.hpp"
#include "tests/storage/memory_device.hpp"

namespace gpunbd::fuzz {

namespace {

namespace asio = boost::asio;
using server::Session;
using server::test::Client;
using server::test::Handshake;

constexpr std::uint32_t kib = 1 << 10;
constexpr std::uint64_t page_size = 4 * kib;
constexpr std::uint64_t volume_size = 12 * page_size + 500;  // more pages than one step of zeroing
constexpr storage::ChannelOptions channel_options = {
    .chunk_size = 4 * kib, .slots = 2, .pinned = 16 * kib};
// Each character is a device: 'h' is addressable by the CPU, 's' needs staging memory.
constexpr std::string_view device_choices[] = {"s", "h", "ss", "sh"};
constexpr std::size_t max_clients = 4;
constexpr int max_actions = 150;  // longer scripts are slow and find little more
constexpr int handshake_rounds = 40;
constexpr int max_rounds = 20'000;  // enough for all requests of these clients
constexpr std::size_t everything = 64 * kib;
constexpr std::uint64_t some_iops = 200'000;  // each request waits for a few rounds

std::pair<int, int> socket_pair() {
    int both[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM, 0, both) == 0, "socketpair() succeeds");
    for (const int fd : both) ::fcntl(fd, F_SETFL, O_NONBLOCK);
    return {both[0], both[1]};
}

protocol::Headers headers_of(const Handshake& handshake) {
    if (handshake.extended) return protocol::Headers::extended;
    return handshake.structured ? protocol::Headers::structured : protocol::Headers::simple;
}

// Sets the smallest buffer that the kernel allows, so that data are sent in pieces.
void shorten_buffer(int fd) {
    const int bytes = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

class World {
 public:
    explicit World(Script& script) : script_(script) {
        ScriptedClient::excuse_nothing();
        const std::uint32_t choices = script_.byte();
        for (const char kind : device_choices[choices & 3]) add(kind);
        short_buffers_ = (choices & 4) != 0;
        if ((choices & 8) != 0) limits_.in_flight = 16 * kib;
        shared_ = make_export(volume_size);
        scratch_ = make_export(page_size + 1);
        if ((choices & 32) != 0) limit_rates(*shared_);
        exports_.replace({shared_});  // applies the rates
        scratch_exports_.replace({scratch_});
        context_ = std::make_unique<server::WorkerContext>(
            channel_options, (choices & 16) != 0 ? 300 * kib : std::uint64_t{1} << 40, false);
        work_.emplace(context_->io.get_executor());
    }

    void play() {
        for (int actions = 0; actions != max_actions && !script_.over(); ++actions) act();
        end();
    }

 private:
    void add(char kind) {
        auto memory = std::make_unique<storage::test::MemoryDevice>(
            static_cast<std::uint32_t>(devices_.size()), storage::test::MemoryDevice::Options{});
        devices_.push_back(kind == 's' ? storage::make_faulty_device(std::move(memory), faults_)
                                       : std::move(memory));
    }

    std::shared_ptr<server::Export> make_export(std::uint64_t size) {
        std::vector<storage::Device*> all;
        all.reserve(devices_.size());
        for (const auto& device : devices_) all.push_back(device.get());
        const bool striped = all.size() > 1;
        auto made = storage::Volume::create(
            {.size = size, .page_size = page_size, .stripe_size = striped ? page_size : 0}, all);
        auto result = std::make_shared<server::Export>();
        result->volume = std::get<std::unique_ptr<storage::Volume>>(std::move(made));
        result->activity = std::make_shared<server::ActivityMap>(size, page_size);
        result->info.size = size;
        return result;
    }

    static void limit_rates(server::Export& exported) {
        config::Rates& rates = exported.options.rates;
        rates.iops = some_iops;
        rates.burst = std::chrono::seconds(0);
        exported.options.rates_per_peer = rates;
    }

    void run(int rounds) {
        for (; rounds != 0; --rounds) {
            if (!round_posted_) {  // otherwise a round without work would block forever
                round_posted_ = true;
                asio::post(context_->io, [this] { round_posted_ = false; });
            }
            context_->scheduler.round();
        }
    }

    Client connect(const Handshake& handshake, const server::ExportRegistry& exports) {
        const auto [client, served] = socket_pair();
        server::Socket socket(context_->io);
        socket.assign(asio::generic::stream_protocol(AF_UNSPEC, 0), served);
        auto session = std::make_shared<Session>(
            *context_, std::move(socket), server::Peer{.listener = "fuzz"}, exports, limits_);
        if (short_buffers_) {  // after the transport has set its own buffer sizes
            shorten_buffer(client);
            shorten_buffer(served);
        }
        sessions_.push_back(session);
        ++alive_;
        session->start([this](Session&) { --alive_; });
        return Client(client, handshake);
    }

    void add_client() {
        const std::uint32_t choices = script_.byte();
        const Handshake handshake{.structured = (choices & 1) != 0, .extended = (choices & 3) == 3};
        if (clients_.size() == max_clients || drained_) return;
        Client client = connect(handshake, exports_);
        client.send_bytes(server::test::handshake_bytes(handshake));
        run(handshake_rounds);
        require(client.shake_hands(true) == 0U, "a valid handshake succeeds");
        protocol::NegotiatedOptions negotiated{.headers = headers_of(handshake),
                                               .export_info = shared_->info};
        if (handshake.structured) negotiated.contexts = protocol::MetaContext::base_allocation;
        clients_.push_back(
            std::make_unique<ScriptedClient>(std::move(client), negotiated, shadow_));
    }

    // A client that sends arbitrary bytes has a separate volume.
    void add_raw_client() {
        if (raw_clients_.size() != max_clients) {
            raw_clients_.push_back(std::make_unique<Client>(connect({}, scratch_exports_)));
        }
    }

    void ask(ScriptedClient& client) {
        const std::uint32_t type = script_.byte();
        const std::uint32_t flags = script_.byte();
        const std::uint32_t offset = script_.word();
        const std::uint32_t length = script_.word();
        const std::uint32_t shape = script_.byte();
        server::test::Ask ask{.type = static_cast<protocol::CommandType>(type % 10),
                              .offset = offset,
                              .length = length,
                              .flags = static_cast<std::uint16_t>(flags & 0x3f),
                              .seed = shape};
        switch (shape & 0x1f) {
            case 1:  // far past the end
                ask.offset <<= 47;
                break;
            case 2:  // very long; the server disconnects at such a WRITE, which would never end
                ask.length |= 0xf0000000;
                break;
            case 4:  // longer than 32 bits
                if (client.extended()) ask.length |= std::uint64_t{1} << 40;
                break;
            case 3:  // the whole volume
                ask.offset = 0;
                ask.length = volume_size;
                break;
            default:  // within the volume
                ask.offset %= volume_size;
                ask.length %= volume_size - ask.offset + 1;
                break;
        }
        client.ask(ask);
    }

    void inject_fault() {
        switch (const std::uint32_t what = script_.byte(); what & 7) {
            case 0:
                faults_.hold = true;
                break;
            case 1:
                faults_.hold = false;
                break;
            case 2:
                faults_.polls_per_copy = 1 + (what >> 3);
                break;
            case 3:
                ScriptedClient::excuse_failures();
                faults_.copies_until_failure = what >> 3;
                break;
            case 4:
                ScriptedClient::excuse_failures();
                faults_.allocations_until_failure = what >> 3;
                break;
            case 5:
                ScriptedClient::excuse_failures();
                faults_.copies_until_dead = what >> 3;
                break;
            case 6:
                drain(what);
                break;
            default:
                if (script_.byte() == 0xff) cut_all();
                break;
        }
    }

    void drain(std::uint32_t what) {
        if ((what & 0x80) == 0) return;  // rarely, because little happens afterwards
        drained_ = true;
        ScriptedClient::excuse_ends();
        for (const auto& session : sessions_) session->drain();
    }

    void cut_all() {
        drained_ = true;
        ScriptedClient::excuse_ends();
        for (const auto& session : sessions_) session->cut("cut by the script");
    }

    void act() {
        const std::uint32_t action = script_.byte();
        const std::uint32_t number = action >> 4;
        if ((action & 15) == 0) return add_client();
        if ((action & 15) == 1) return add_raw_client();
        if ((action & 15) == 2) return run(static_cast<int>(number) + 1);
        if ((action & 15) == 3) return inject_fault();
        if ((action & 15) == 4) return act_raw(number);
        if (clients_.empty()) return;
        ScriptedClient& client = *clients_[number % clients_.size()];
        switch (action & 15) {
            case 5:
                return client.send(1 + script_.byte());
            case 6:
                return client.receive(1 + script_.byte() * 16);
            case 7:
                client.send(everything);
                run(2);
                return client.receive(everything);
            case 8:
                if (script_.byte() == 0) client.stop_sending();
                return;
            case 9:
                return client.cut();
            case 10:
                return client.send_junk(script_.bytes(script_.byte()));
            default:
                return ask(client);
        }
    }

    void act_raw(std::uint32_t number) {
        const auto bytes = script_.bytes(script_.byte());
        if (raw_clients_.empty()) return;
        Client& client = *raw_clients_[number % raw_clients_.size()];
        client.offer(bytes);
        if ((number & 4) != 0) client.receive_here(everything);
        if (number == 15) client.close();
    }

    // One compliant client is served to the end, after all others have disconnected.
    void end() {
        faults_.hold = false;
        faults_.polls_per_copy = 1;
        raw_clients_.clear();
        ScriptedClient* last = nullptr;
        for (const auto& client : clients_) {
            if (last == nullptr && client->compliant()) {
                last = client.get();
            } else {
                client->cut();
            }
        }
        if (last != nullptr) {
            for (int round = 0; !last->satisfied(); ++round) {
                require(round != max_rounds, "a compliant client is answered");
                last->send(everything);
                run(1);
                last->receive(everything);
            }
            last->cut();
        }
        for (int round = 0; alive_ != 0 || context_->channels.busy(); ++round) {
            require(round != max_rounds, "every session ends");
            run(1);
        }
        sessions_.clear();
        check_all_released();
    }

    void check_all_released() {
        require(context_->budget.used() == 0, "no budget is in use");
        require(context_->scheduler.working() == 0, "no operation is active");
        for (const auto& device : devices_) {
            context_->channels.open(*device);
            storage::Channel& channel = context_->channels.to(*device);
            for (const auto* arena : {&channel.read_staging(), &channel.write_staging()}) {
                require(arena->free_bytes() == arena->largest(), "no staging memory is in use");
            }
        }
        faults_.allocations_until_failure = storage::FaultScript::never;
        for (const auto& each : {shared_, scratch_}) check_pages(*each->volume);
    }

    // A page that is still referenced cannot be reused: mapping would retire it.
    static void check_pages(storage::Volume& volume) {
        const std::uint64_t pages = volume.page_of(volume.size() - 1) + 1;
        for (std::uint64_t page = 0; page != pages; ++page) volume.unmap(page);
        require(volume.mapped_bytes() == 0, "all pages are unmapped");
        for (std::uint64_t page = 0; page != pages; ++page) {
            storage::PageRef ref;
            require(volume.map(page, ref) == storage::Status::ok, "a page can be mapped");
            const auto* const at = reinterpret_cast<const std::byte*>(ref.address());
            require(std::all_of(at, at + page_size, [](std::byte b) { return b == std::byte{0}; }),
                    "a new page reads as zeroes");
        }
        require(volume.retired_bytes() == 0, "no page is referenced");
    }

    Script& script_;
    storage::FaultScript faults_;
    std::vector<std::unique_ptr<storage::Device>> devices_;
    std::shared_ptr<server::Export> shared_;
    std::shared_ptr<server::Export> scratch_;
    server::ExportRegistry exports_;
    server::ExportRegistry scratch_exports_;
    server::SessionLimits limits_;
    std::unique_ptr<server::WorkerContext> context_;
    std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work_;
    std::vector<std::shared_ptr<Session>> sessions_;
    int alive_ = 0;  // sessions
    bool round_posted_ = false;
    bool short_buffers_ = false;
    bool drained_ = false;
    Shadow shadow_{volume_size};
    std::vector<std::unique_ptr<ScriptedClient>> clients_;
    std::vector<std::unique_ptr<Client>> raw_clients_;
};

// Formats every line, and fails at one that reports an exception.
class Sink final : public spdlog::sinks::base_sink<std::mutex> {
    void sink_it_(const spdlog::details::log_msg& message) override {
        spdlog::memory_buf_t line;
        formatter_->format(message, line);
        require(message.level < spdlog::level::err, fmt::to_string(line).c_str());
    }
    void flush_() override {}
};

[[noreturn]] void fail(const doctest::AssertData& data) {
    std::fprintf(stderr, "%s:%d: assertion failed: %s\n", data.m_file, data.m_line, data.m_expr);
    std::abort();
}

}  // namespace

}  // namespace gpunbd::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    using namespace gpunbd::fuzz;
    std::signal(SIGPIPE, SIG_IGN);
    auto logger = std::make_shared<spdlog::logger>("fuzz", std::make_shared<Sink>());
    logger->set_level(spdlog::level::debug);
    spdlog::set_default_logger(std::move(logger));
    // Components shared with the tests use doctest's assertions.
    static doctest::Context checks;
    checks.setAsDefaultForAssertsOutOfTestCases();
    checks.setAssertHandler([](const doctest::AssertData& data) {
        if (data.m_failed) fail(data);
    });
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    gpunbd::fuzz::Script script(data, size);
    gpunbd::fuzz::World(script).play();
    return 0;
}
