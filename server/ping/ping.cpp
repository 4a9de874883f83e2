#include "server/ping/ping.hpp"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "config/quote.hpp"
#include "config/size.hpp"
#include "protocol/bytes.hpp"
#include "protocol/constants.hpp"
#include "server/ping/ping_stream.hpp"

namespace gpunbd::server {

namespace {

using protocol::OptionReply;
using protocol::OptionType;
using PingBytes = std::vector<std::byte>;

constexpr std::size_t greeting_length = 18;
constexpr std::size_t answer_head = 20;
constexpr std::size_t info_export_length = 12;
constexpr std::uint32_t longest_answer = 64 * 1024;  // bytes
constexpr int most_answers = 64;                     // to one option

struct PingAnswer {
    std::uint32_t type = 0;
    PingBytes data;
};

struct ExportTold {
    std::uint64_t size = 0;
    bool read_only = false;
};

[[noreturn]] void no_nbd(const char* what) {
    throw std::runtime_error(fmt::format("what answers there speaks no NBD: {}", what));
}

void greet(PingStream& server) {
    std::array<std::byte, greeting_length> greeting{};
    server.receive(greeting);
    if (protocol::load_be<std::uint64_t>(greeting.data()) != protocol::init_magic) {
        no_nbd("it greets with something else");
    }
    if (protocol::load_be<std::uint64_t>(greeting.data() + 8) != protocol::option_magic) {
        throw std::runtime_error("the server knows the old handshake only, which tells nothing");
    }
    const auto flags = protocol::load_be<std::uint16_t>(greeting.data() + 16);
    if ((flags & protocol::flag_fixed_newstyle) == 0) {
        throw std::runtime_error("the server does not know the fixed newstyle handshake");
    }
    PingBytes ours;
    protocol::append_be(
        ours, std::uint32_t{protocol::flag_fixed_newstyle} | (flags & protocol::flag_no_zeroes));
    server.send(ours);
}

void ask(PingStream& server, OptionType option, std::span<const std::byte> data = {}) {
    PingBytes out;
    protocol::append_be(out, protocol::option_magic);
    protocol::append_be(out, static_cast<std::uint32_t>(option));
    protocol::append_be(out, static_cast<std::uint32_t>(data.size()));
    out.insert(out.end(), data.begin(), data.end());
    server.send(out);
}

PingAnswer next_answer(PingStream& server, OptionType option) {
    std::array<std::byte, answer_head> head{};
    server.receive(head);
    if (protocol::load_be<std::uint64_t>(head.data()) != protocol::option_reply_magic ||
        protocol::load_be<std::uint32_t>(head.data() + 8) != static_cast<std::uint32_t>(option)) {
        no_nbd("it answers something else than was asked");
    }
    const auto length = protocol::load_be<std::uint32_t>(head.data() + 16);
    if (length > longest_answer) no_nbd("its answer is too long");
    PingAnswer answer{.type = protocol::load_be<std::uint32_t>(head.data() + 12),
                      .data = PingBytes(length)};
    server.receive(answer.data);
    return answer;
}

std::string_view meaning_of(std::uint32_t type) {
    switch (static_cast<OptionReply>(type)) {
        case OptionReply::err_unsup:
            return "it does not know what was asked";
        case OptionReply::err_policy:
            return "it may not be opened, or not now";
        case OptionReply::err_tls_reqd:
            return "it is to be had in TLS only; write nbds for nbd";
        case OptionReply::err_unknown:
            return "there is no such export";
        case OptionReply::err_shutdown:
            return "the server is about to end";
        case OptionReply::err_block_size_reqd:
            return "it is for clients that ask for its block sizes";
        default:
            return "the server refuses";
    }
}

[[noreturn]] void refused(const PingAnswer& answer) {
    const std::string_view words(reinterpret_cast<const char*>(answer.data.data()),
                                 answer.data.size());
    throw std::runtime_error(
        words.empty() ? std::string(meaning_of(answer.type))
                      : fmt::format("{} ({})", meaning_of(answer.type), config::in_quotes(words)));
}

void enter_tls(PingStream& server, const NbdTarget& target) {
    ask(server, OptionType::starttls);
    const PingAnswer answer = next_answer(server, OptionType::starttls);
    if (answer.type == static_cast<std::uint32_t>(OptionReply::err_unsup) ||
        answer.type == static_cast<std::uint32_t>(OptionReply::err_policy)) {
        throw std::runtime_error("the server has no TLS; write nbd for nbds");
    }
    if (answer.type != static_cast<std::uint32_t>(OptionReply::ack)) refused(answer);
    server.start_tls(target);
}

PingBytes info_request(const std::string& name) {
    constexpr std::uint16_t nothing_besides = 0;
    PingBytes out;
    protocol::append_be(out, static_cast<std::uint32_t>(name.size()));
    for (const char each : name) out.push_back(static_cast<std::byte>(each));
    protocol::append_be(out, nothing_besides);
    return out;
}

void take_info(const PingAnswer& answer, std::optional<ExportTold>& told) {
    constexpr auto about_export = static_cast<std::uint16_t>(protocol::InfoType::export_);
    if (answer.data.size() < sizeof about_export) no_nbd("its answer is too short");
    if (protocol::load_be<std::uint16_t>(answer.data.data()) != about_export) return;
    if (answer.data.size() != info_export_length) no_nbd("its answer has another length");
    const auto flags = protocol::load_be<std::uint16_t>(answer.data.data() + 10);
    told = {.size = protocol::load_be<std::uint64_t>(answer.data.data() + 2),
            .read_only = (flags & protocol::transmission_flag::read_only) != 0};
}

ExportTold ask_about(PingStream& server, const std::string& name) {
    ask(server, OptionType::info, info_request(name));
    std::optional<ExportTold> told;
    for (int i = 0; i != most_answers; ++i) {
        const PingAnswer answer = next_answer(server, OptionType::info);
        if (answer.type == static_cast<std::uint32_t>(OptionReply::info)) {
            take_info(answer, told);
        } else if (answer.type != static_cast<std::uint32_t>(OptionReply::ack)) {
            refused(answer);
        } else if (told) {
            return *told;
        } else {
            no_nbd("it says nothing of the export");
        }
    }
    no_nbd("its answer has no end");
}

// What is known by now stays true, whatever becomes of the goodbye.
void leave(PingStream& server) {
    try {
        ask(server, OptionType::abort);
        static_cast<void>(next_answer(server, OptionType::abort));
    } catch (const std::runtime_error&) {
        return;
    }
}

}  // namespace

std::string ping(const config::PingCommand& command) {
    const NbdTarget target = parse_nbd_uri(command.uri);
    PingStream server(target, std::chrono::seconds(command.timeout));
    greet(server);
    if (target.tls) enter_tls(server, target);
    const ExportTold told = ask_about(server, target.export_name);
    leave(server);
    return fmt::format("export {} answers: {}{}\n", config::in_quotes(target.export_name),
                       config::human_size(told.size), told.read_only ? ", read-only" : "");
}

}  // namespace gpunbd::server
