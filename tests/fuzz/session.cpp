// Whole sessions, on a worker's parts that run on this thread alone, over sockets that are pairs.
// The input is a script of what clients do and what happens to the device; at the end nobody waits
// for an answer in vain, and nothing is lent, charged or held any more.
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

#include "server/connection/session.hpp"
#include "server/worker/worker_context.hpp"
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
constexpr std::uint64_t volume_size = 12 * page_size + 500;  // more pages than one step of a zero
constexpr storage::ChannelOptions channel_options = {
    .chunk_size = 4 * kib, .slots = 2, .pinned = 16 * kib};
// One device each: 'h' is addressed in place, 's' through staging memory.
constexpr std::string_view device_choices[] = {"s", "h", "ss", "sh"};
constexpr std::size_t max_clients = 4;
constexpr int max_actions = 150;  // longer scripts find little, slowly
constexpr int rounds_for_a_handshake = 40;
constexpr int enough_rounds = 20'000;  // for all that these few clients can have asked
constexpr std::size_t everything = 64 * kib;
constexpr std::uint64_t some_iops = 200'000;  // each request waits, and for few rounds

std::pair<int, int> sockets() {
    int both[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM, 0, both) == 0, "a pair of sockets");
    for (const int fd : both) ::fcntl(fd, F_SETFL, O_NONBLOCK);
    return {both[0], both[1]};
}

protocol::Headers headers_of(const Handshake& handshake) {
    if (handshake.extended) return protocol::Headers::extended;
    return handshake.structured ? protocol::Headers::structured : protocol::Headers::simple;
}

// As short as the kernel allows, so that what is sent goes in pieces.
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
        if ((choices & 32) != 0) hold_back(*shared_);
        exports_.replace({shared_});  // which has their rates heeded
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

    static void hold_back(server::Export& exported) {
        config::Rates& rates = exported.options.rates;
        rates.iops = some_iops;
        rates.burst = std::chrono::seconds(0);
        exported.options.rates_per_peer = rates;
    }

    void run(int rounds) {
        for (; rounds != 0; --rounds) {
            if (!nudged_) {  // else a round with nothing to do would wait for ever
                nudged_ = true;
                asio::post(context_->io, [this] { nudged_ = false; });
            }
            context_->scheduler.round();
        }
    }

    Client connect(const Handshake& handshake, const server::ExportRegistry& exports) {
        const auto [client, served] = sockets();
        server::Socket socket(context_->io);
        socket.assign(asio::generic::stream_protocol(AF_UNSPEC, 0), served);
        auto session = std::make_shared<Session>(
            *context_, std::move(socket), server::Peer{.listener = "fuzz"}, exports, limits_);
        if (short_buffers_) {  // only now: the transport has made them long
            shorten_buffer(client);
            shorten_buffer(served);
        }
        sessions_.push_back(session);
        ++alive_;
        session->start([this](Session&) { --alive_; });
        return Client(client, handshake);
    }

    void enter() {
        const std::uint32_t choices = script_.byte();
        const Handshake handshake{.structured = (choices & 1) != 0, .extended = (choices & 3) == 3};
        if (clients_.size() == max_clients || drained_) return;
        Client client = connect(handshake, exports_);
        client.send_bytes(server::test::handshake_bytes(handshake));
        run(rounds_for_a_handshake);
        require(client.shake_hands(true) == 0U, "a handshake without a flaw succeeds");
        protocol::NegotiatedOptions negotiated{.headers = headers_of(handshake),
                                               .export_info = shared_->info};
        if (handshake.structured) negotiated.contexts = protocol::MetaContext::base_allocation;
        clients_.push_back(
            std::make_unique<ScriptedClient>(std::move(client), negotiated, shadow_));
    }

    // Whatever it sends, it reaches no volume but its own.
    void enter_raw() {
        if (strangers_.size() != max_clients) {
            strangers_.push_back(std::make_unique<Client>(connect({}, scratch_exports_)));
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
            case 1:  // far out
                ask.offset <<= 47;
                break;
            case 2:  // absurdly long; a WRITE of that is hung up on, or would be endless
                ask.length |= 0xf0000000;
                break;
            case 4:  // more than 32 bits can say
                if (client.extended()) ask.length |= std::uint64_t{1} << 40;
                break;
            case 3:  // all there is
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

    void break_something() {
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
        if ((what & 0x80) == 0) return;  // seldom: little happens after it
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
        const std::uint32_t who = action >> 4;
        if ((action & 15) == 0) return enter();
        if ((action & 15) == 1) return enter_raw();
        if ((action & 15) == 2) return run(static_cast<int>(who) + 1);
        if ((action & 15) == 3) return break_something();
        if ((action & 15) == 4) return act_raw(who);
        if (clients_.empty()) return;
        ScriptedClient& client = *clients_[who % clients_.size()];
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

    void act_raw(std::uint32_t who) {
        const auto bytes = script_.bytes(script_.byte());
        if (strangers_.empty()) return;
        Client& client = *strangers_[who % strangers_.size()];
        client.offer(bytes);
        if ((who & 4) != 0) client.receive_here(everything);
        if (who == 15) client.close();
    }

    // Somebody honest is served to the end, whatever the others have left behind.
    void end() {
        faults_.hold = false;
        faults_.polls_per_copy = 1;
        strangers_.clear();
        ScriptedClient* last = nullptr;
        for (const auto& client : clients_) {
            if (last == nullptr && client->honest()) {
                last = client.get();
            } else {
                client->cut();
            }
        }
        if (last != nullptr) {
            for (int round = 0; !last->satisfied(); ++round) {
                require(round != enough_rounds, "an honest client is answered in the end");
                last->send(everything);
                run(1);
                last->receive(everything);
            }
            last->cut();
        }
        for (int round = 0; alive_ != 0 || context_->channels.busy(); ++round) {
            require(round != enough_rounds, "every session ends");
            run(1);
        }
        sessions_.clear();
        check_nothing_left();
    }

    void check_nothing_left() {
        require(context_->budget.used() == 0, "nothing is charged");
        require(context_->scheduler.working() == 0, "nobody works");
        for (const auto& device : devices_) {
            context_->channels.open(*device);
            storage::Channel& channel = context_->channels.to(*device);
            for (const auto* arena : {&channel.read_staging(), &channel.write_staging()}) {
                require(arena->free_bytes() == arena->largest(), "no staging memory is lent");
            }
        }
        faults_.allocations_until_failure = storage::FaultScript::never;
        for (const auto& each : {shared_, scratch_}) check_pages(*each->volume);
    }

    // A page that somebody still held would need another one in its place.
    static void check_pages(storage::Volume& volume) {
        const std::uint64_t pages = volume.page_of(volume.size() - 1) + 1;
        for (std::uint64_t page = 0; page != pages; ++page) volume.unmap(page);
        require(volume.mapped_bytes() == 0, "all pages are holes");
        for (std::uint64_t page = 0; page != pages; ++page) {
            storage::PageRef ref;
            require(volume.map(page, ref) == storage::Status::ok, "a page can be had");
            const auto* const at = reinterpret_cast<const std::byte*>(ref.address());
            require(std::all_of(at, at + page_size, [](std::byte b) { return b == std::byte{0}; }),
                    "a new page reads as zeroes");
        }
        require(volume.retired_bytes() == 0, "no page is held");
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
    bool nudged_ = false;
    bool short_buffers_ = false;
    bool drained_ = false;
    Shadow shadow_{volume_size};
    std::vector<std::unique_ptr<ScriptedClient>> clients_;
    std::vector<std::unique_ptr<Client>> strangers_;
};

// Formats every line, and takes none that tells of an exception.
class Sink final : public spdlog::sinks::base_sink<std::mutex> {
    void sink_it_(const spdlog::details::log_msg& message) override {
        spdlog::memory_buf_t line;
        formatter_->format(message, line);
        require(message.level < spdlog::level::err, fmt::to_string(line).c_str());
    }
    void flush_() override {}
};

[[noreturn]] void fail(const doctest::AssertData& data) {
    std::fprintf(stderr, "%s:%d: %s is not so\n", data.m_file, data.m_line, data.m_expr);
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
    // The parts that the tests lend check what they do.
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
