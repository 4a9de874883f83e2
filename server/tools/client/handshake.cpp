#include "server/tools/client/handshake.hpp"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "config/quote.hpp"
#include "protocol/bytes.hpp"

namespace gpunbd::client {

namespace {

using protocol::load_be;
using protocol::OptionReply;
using protocol::OptionType;
using Bytes = std::vector<std::byte>;

constexpr std::uint32_t longest_answer = 64 * 1024;  // bytes
constexpr int most_answers = 64;                     // for one option

std::string_view text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::optional<Failure> send_option(Stream& stream, OptionType option,
                                   std::span<const std::byte> data) {
    Bytes out;
    protocol::append_be(out, protocol::option_magic);
    protocol::append_be(out, static_cast<std::uint32_t>(option));
    protocol::append_be(out, static_cast<std::uint32_t>(data.size()));
    out.insert(out.end(), data.begin(), data.end());
    return stream.send(out);
}

struct Answer {
    OptionReply kind{};
    Bytes data;
};

Expected<Answer, Failure> receive_answer(Stream& stream, OptionType option) {
    std::array<std::byte, 20> header{};
    if (auto failed = stream.receive(header)) return std::move(*failed);
    if (load_be<std::uint64_t>(&header[0]) != protocol::option_reply_magic ||
        load_be<std::uint32_t>(&header[8]) != static_cast<std::uint32_t>(option)) {
        return Failure{"the server replied to another option"};
    }
    const auto length = load_be<std::uint32_t>(&header[16]);
    if (length > longest_answer) return Failure{"the server's reply is too long"};
    Answer out{.kind = OptionReply{load_be<std::uint32_t>(&header[12])}, .data = Bytes(length)};
    if (auto failed = stream.receive(out.data)) return std::move(*failed);
    return out;
}

std::string_view meaning_of(OptionReply kind) {
    switch (kind) {
        case OptionReply::err_unsup:
            return "the server supports neither GO nor INFO; use a newer server";
        case OptionReply::err_policy:
            return "the server denies access to it";
        case OptionReply::err_tls_reqd:
            return "it requires TLS; write nbds instead of nbd";
        case OptionReply::err_unknown:
            return "there is no such export; nbdinfo --list lists the exports";
        case OptionReply::err_shutdown:
            return "the server is shutting down";
        case OptionReply::err_block_size_reqd:
            return "it is only for clients that request its block sizes";
        default:
            return "the server rejects the request";
    }
}

Failure refusal(const Answer& answer, std::string_view name) {
    const std::string_view words = text_of(answer.data);
    return {fmt::format("export {}: {}{}", config::in_quotes(name), meaning_of(answer.kind),
                        words.empty() ? "" : fmt::format(" ({})", config::in_quotes(words)))};
}

Bytes request_for(std::string_view name) {
    constexpr std::array wanted{protocol::InfoType::description, protocol::InfoType::block_size};
    Bytes data;
    protocol::append_be(data, static_cast<std::uint32_t>(name.size()));
    for (const char each : name) data.push_back(static_cast<std::byte>(each));
    protocol::append_be(data, static_cast<std::uint16_t>(wanted.size()));
    for (const auto each : wanted) protocol::append_be(data, static_cast<std::uint16_t>(each));
    return data;
}

// Returns false if the length does not match the type.
bool take_info(std::span<const std::byte> info, std::optional<std::uint64_t>& size,
               ExportFacts& facts) {
    if (info.size() < 2) return false;
    const auto kind = protocol::InfoType{load_be<std::uint16_t>(info.data())};
    const auto rest = info.subspan(2);
    switch (kind) {
        case protocol::InfoType::export_:
            if (rest.size() != 10) return false;
            size = load_be<std::uint64_t>(rest.data());
            facts.flags = load_be<std::uint16_t>(&rest[8]);
            return true;
        case protocol::InfoType::block_size:
            if (rest.size() != 12) return false;
            facts.block_size = load_be<std::uint32_t>(rest.data());
            facts.max_request = load_be<std::uint32_t>(&rest[8]);
            return true;
        case protocol::InfoType::description:
            facts.instance = instance_in(text_of(rest));
            return true;
        default:
            return true;  // servers may send information that was not requested
    }
}

bool is_id(std::string_view text) {
    constexpr std::size_t digits = 32;
    return text.size() == digits &&
           text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

Expected<Endpoint, Failure> find_endpoint(const config::NbdTarget& target, TlsBy by) {
    Endpoint out;
    out.name = target.export_name;
    if (target.tls) {
        auto tls = Tls::load(target, by);
        if (!tls) return std::move(tls).error();
        out.tls = *std::move(tls);
    }
    auto address = resolve(target);
    if (!address) return std::move(address).error();
    out.address = *std::move(address);
    return out;
}

Expected<Stream, Failure> call(const Endpoint& endpoint, Deadline until) {
    auto socket = dial(endpoint.address, until);
    if (!socket) return std::move(socket).error();
    Stream stream(*std::move(socket), until);
    if (auto failed = greet(stream)) return std::move(*failed);
    if (endpoint.tls) {
        if (auto failed = enter_tls(stream, endpoint.tls)) return std::move(*failed);
    }
    return stream;
}

std::string instance_in(std::string_view description) {
    constexpr std::string_view alone = "instance ";
    constexpr std::string_view behind_text = " (instance ";
    if (description.starts_with(alone) && is_id(description.substr(alone.size()))) {
        return std::string(description.substr(alone.size()));
    }
    const std::size_t start = description.rfind(behind_text);
    if (start == description.npos || !description.ends_with(')')) return {};
    description.remove_suffix(1);
    const std::string_view id = description.substr(start + behind_text.size());
    return is_id(id) ? std::string(id) : std::string();
}

std::optional<Failure> greet(Stream& stream) {
    std::array<std::byte, 18> greeting{};
    if (auto failed = stream.receive(greeting)) return failed;
    if (load_be<std::uint64_t>(&greeting[0]) != protocol::init_magic) {
        return Failure{"the peer is not an NBD server: its greeting is invalid"};
    }
    if (load_be<std::uint64_t>(&greeting[8]) != protocol::option_magic) {
        return Failure{"the server supports only the old handshake, which cannot report errors"};
    }
    const auto flags = load_be<std::uint16_t>(&greeting[16]);
    if ((flags & protocol::flag_fixed_newstyle) == 0) {
        return Failure{"the server does not support the fixed newstyle handshake"};
    }
    Bytes answer;
    protocol::append_be<std::uint32_t>(
        answer, flags & (protocol::flag_fixed_newstyle | protocol::flag_no_zeroes));
    return stream.send(answer);
}

std::optional<Failure> enter_tls(Stream& stream, std::shared_ptr<const Tls> tls) {
    if (auto failed = send_option(stream, OptionType::starttls, {})) return failed;
    auto answer = receive_answer(stream, OptionType::starttls);
    if (!answer) return std::move(answer).error();
    const auto& [kind, data] = *answer;
    if (kind == OptionReply::ack) return stream.start_tls(std::move(tls));
    if (kind == OptionReply::err_unsup || kind == OptionReply::err_policy) {
        return Failure{"the server does not support TLS; write nbd instead of nbds"};
    }
    return Failure{fmt::format("the server rejects TLS ({})", config::in_quotes(text_of(data)))};
}

Expected<ExportFacts, Failure> query_export(Stream& stream, OptionType go_or_info,
                                            std::string_view name) {
    if (auto failed = send_option(stream, go_or_info, request_for(name))) return std::move(*failed);
    ExportFacts facts;
    std::optional<std::uint64_t> size;
    for (int i = 0; i != most_answers; ++i) {
        auto received = receive_answer(stream, go_or_info);
        if (!received) return std::move(received).error();
        const auto& answer = *received;
        if (answer.kind == OptionReply::info) {
            if (!take_info(answer.data, size, facts)) {
                return Failure{"the server sent malformed information about the export"};
            }
        } else if (answer.kind != OptionReply::ack) {
            return refusal(answer, name);
        } else if (!size) {
            return Failure{"the server sent no information about the export"};
        } else {
            facts.size = *size;
            return facts;
        }
    }
    return Failure{"the server's reply does not end"};
}

void leave(Stream& stream) {
    if (!send_option(stream, OptionType::abort, {})) {
        static_cast<void>(receive_answer(stream, OptionType::abort));
    }
}

}  // namespace gpunbd::client
