#include "tests/fuzz/scripted_client.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "tests/fuzz/require.hpp"

namespace gpunbd::fuzz {

using protocol::Command;
using protocol::CommandType;
using protocol::Error;
using protocol::Refusal;
using server::test::Answer;
using server::test::Ask;
using server::test::Bytes;

namespace {

bool changes(const Command& command) {
    return command.type == CommandType::write || command.type == CommandType::trim ||
           command.type == CommandType::write_zeroes;
}

}  // namespace

ScriptedClient::ScriptedClient(server::test::Client client, protocol::NegotiatedOptions negotiated,
                               Shadow& shadow)
    : client_(std::move(client)), negotiated_(std::move(negotiated)), shadow_(shadow) {}

void ScriptedClient::ask(const Ask& ask) {
    if (sent_junk_ || stopped_ || cut_) return;
    const std::uint64_t cookie = client_.expect(ask);
    const protocol::Request request = server::test::request_of(ask, cookie, extended());
    protocol::Validated expected = validate(request, negotiated_);
    if (std::holds_alternative<protocol::StatusPayload>(expected)) {
        expected = validate_status(request, server::test::status_payload_of(ask), negotiated_);
    }
    // The server disconnects at the header of such a request, so no payload is sent.
    const bool disconnects = std::holds_alternative<protocol::Hangup>(expected);
    const Bytes bytes = disconnects ? server::test::encoded_header(ask, cookie, extended())
                                    : server::test::encoded(ask, cookie, extended());
    to_send_.insert(to_send_.end(), bytes.begin(), bytes.end());
    if (leaves_) return;  // the server does not read it
    Shadow::Time at = shadow_.now();
    const auto* const command = std::get_if<Command>(&expected);
    if (command != nullptr && changes(*command)) {
        at = shadow_.begin_change(command->offset, command->length);
    }
    leaves_ = ask.type == CommandType::disc || disconnects;
    server_disconnects_ = disconnects;
    if (!leaves_) pending_.emplace(cookie, Pending{ask, expected, at});
}

void ScriptedClient::send_junk(std::span<const std::byte> bytes) {
    if (stopped_ || cut_) return;
    if (!sent_junk_) shadow_.begin_change(0, shadow_.size());  // never ended: any byte may change
    sent_junk_ = true;
    to_send_.insert(to_send_.end(), bytes.begin(), bytes.end());
}

void ScriptedClient::send(std::size_t maximum) {
    if (stopped_ || cut_) return;
    const std::size_t sent =
        client_.offer(std::span(to_send_).first(std::min(maximum, to_send_.size())));
    to_send_.erase(to_send_.begin(), to_send_.begin() + static_cast<std::ptrdiff_t>(sent));
}

void ScriptedClient::receive(std::size_t maximum) {
    if (cut_) return;
    client_.receive_here(maximum);
    if (sent_junk_) return;  // replies cannot be assigned to requests any more
    while (const auto answer = client_.next_here()) check(*answer);
    if (client_.ended()) check_end();
}

void ScriptedClient::stop_sending() {
    if (cut_) return;
    client_.shut_down_sending();
    stopped_ = true;
}

void ScriptedClient::cut() {
    client_.close();
    cut_ = true;
}

void ScriptedClient::check(const Answer& answer) {
    const auto at = pending_.find(answer.cookie);
    require(at != pending_.end(), "a reply belongs to a request");
    const Pending& request = at->second;
    check_error(request, answer.error);
    const auto* const command = std::get_if<Command>(&request.expected);
    if (command != nullptr) {
        const bool succeeded = answer.error == Error::none;
        const bool is_write = command->type == CommandType::write;
        if (changes(*command)) {
            const Bytes payload = is_write ? server::test::payload_of(request.ask) : Bytes();
            shadow_.end_change(command->offset, command->length, request.at, succeeded,
                               [&](std::size_t i) { return is_write ? payload[i] : std::byte{0}; });
        } else if (succeeded && command->type == CommandType::read) {
            check_data(request, answer.data);
        } else if (succeeded && command->type == CommandType::block_status) {
            check_extents(request, answer.extents);
        }
    }
    pending_.erase(at);
}

void ScriptedClient::check_error(const Pending& request, Error error) const {
    if (ends_excused && error == Error::eshutdown) return;
    if (const auto* const refusal = std::get_if<Refusal>(&request.expected)) {
        require(error == refusal->error, "an invalid request gets the error of the gate");
        return;
    }
    const Command& command = std::get<Command>(request.expected);
    if (command.no_hole && command.fast_zero) {
        require(error == Error::enotsup, "zeroes that must be stored are not fast");
    } else if (failures_excused) {
        require(error == Error::none || error == Error::eio || error == Error::enospc,
                "a device error is EIO or ENOSPC");
    } else {
        require(error == Error::none, "a valid command succeeds");
    }
}

void ScriptedClient::check_data(const Pending& request, const Bytes& data) const {
    require(data.size() == request.ask.length, "a READ returns all of its data");
    for (std::size_t i = 0; i != data.size(); ++i) {
        require(shadow_.may_be(request.ask.offset + i, data[i], request.at),
                "a READ returns the contents");
    }
}

void ScriptedClient::check_extents(const Pending& request,
                                   const std::vector<protocol::Extent>& extents) const {
    require(!extents.empty(), "a BLOCK_STATUS reply has an extent");
    if ((request.ask.flags & protocol::command_flag::req_one) != 0) {
        require(extents.size() == 1, "a reply to REQ_ONE has one extent");
    }
    const std::uint64_t end = request.ask.offset + request.ask.length;
    std::uint64_t at = request.ask.offset;
    for (const protocol::Extent& extent : extents) {
        require(extent.length != 0 && extent.length <= end - at,
                "extents are inside of the request");
        const std::uint64_t extent_end = at + extent.length;
        for (; at != extent_end; ++at) {
            if ((extent.status & protocol::state_zero) == 0) continue;
            require(shadow_.may_be(at, std::byte{0}, request.at),
                    "extents reported as zero are zero");
        }
    }
}

void ScriptedClient::check_end() const {
    require(leaves_ || stopped_ || ends_excused || failures_excused,
            "a compliant client is not disconnected");
    if (leaves_ && !server_disconnects_ && !failures_excused && !ends_excused && to_send_.empty()) {
        require(pending_.empty(), "requests before DISC are answered");
    }
}

}  // namespace gpunbd::fuzz
