// The outbox alone: whatever part of it the socket takes, the bytes and their order are the same.
#include "server/outbox.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <string>

#include "server/operation.hpp"

namespace gpunbd::server::test {
namespace {

// Tells what it is told.
class Told final : public Operation {
 public:
    void transfer_moved(storage::Transfer&) override {}
    void abandon() override {}
    void sent() override {
        ++sents;
        if (on_sent) on_sent();
    }
    void resume() override {
        ++resumes;
        if (on_resume) on_resume();
    }

    int sents = 0;
    int resumes = 0;
    std::function<void()> on_sent;
    std::function<void()> on_resume;
};

class Texts {
 public:
    void add(const Operation* sender, const std::string& header, const std::string& payload = {},
             Operation* told = nullptr) {
        Outbox::Item& item = outbox.add(sender);
        std::memcpy(item.header.data(), header.data(), header.size());
        item.header_length = static_cast<std::uint8_t>(header.size());
        payloads_.push_back(payload);
        item.payload = reinterpret_cast<const std::byte*>(payloads_.back().data());
        item.payload_length = payload.size();
        item.operation = told;
    }
    // Sends at most so many bytes in at most so many pieces; what was sent.
    std::string send(std::size_t most, std::size_t pieces = 64) {
        std::vector<iovec> out(pieces);
        out.resize(outbox.gather(out));
        std::string text;
        for (const iovec& piece : out) {
            CHECK(piece.iov_len != 0);
            text.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
        }
        text.resize(std::min(text.size(), most));
        outbox.sent(text.size());
        return text;
    }
    std::string send_all(std::size_t most = 1000, std::size_t pieces = 64) {
        std::string text;
        while (!outbox.nothing_to_send()) text += send(most, pieces);
        return text;
    }

    Outbox outbox{nullptr};

 private:
    std::deque<std::string> payloads_;  // stay where they are
};

TEST_CASE("outbox: parts of every length, in pieces of every number") {
    for (std::size_t most = 1; most != 60; ++most) {
        for (std::size_t pieces = 2; pieces != 9; ++pieces) {
            CAPTURE(most);
            CAPTURE(pieces);
            Texts texts;
            Told told[6];
            std::vector<int> order;
            for (int i = 0; i != 6; ++i) told[i].on_sent = [&order, i] { order.push_back(i); };
            texts.add(nullptr, "head0:", "payload0.", &told[0]);
            texts.add(nullptr, "head1:", "", &told[1]);
            texts.add(nullptr, "", "payload2.", &told[2]);
            texts.add(nullptr, "head:");
            texts.add(nullptr, "", "p");
            texts.add(nullptr, "h", "q", &told[3]);
            texts.add(nullptr, "head4:", std::string(30, 'x'), &told[4]);
            texts.add(nullptr, "head5:", "end", &told[5]);
            CHECK(texts.outbox.size() == 8);
            CHECK(texts.send_all(most, pieces) == "head0:payload0.head1:payload2.head:phqhead4:" +
                                                      std::string(30, 'x') + "head5:end");
            CHECK(order == std::vector{0, 1, 2, 3, 4, 5});
            CHECK(texts.outbox.empty());
            CHECK(texts.outbox.size() == 0);
        }
    }
}

TEST_CASE("outbox: a long payload leaves by itself, after its header") {
    const std::string payload(512 << 10, 'x');
    Texts texts;
    Told told;
    texts.add(nullptr, "1", "short");
    texts.add(nullptr, "long:", payload, &told);
    texts.add(nullptr, "", payload);
    texts.add(nullptr, "2", "short");
    texts.add(nullptr, "3");
    constexpr std::size_t all = 4 << 20;
    CHECK(texts.send(all) == "1short");
    CHECK(texts.send(3) == "lon");
    CHECK(texts.send(all) == "g:");
    CHECK(texts.send(1000) == payload.substr(0, 1000));
    CHECK(told.sents == 0);
    CHECK(texts.send(all) == payload.substr(1000));
    CHECK(told.sents == 1);
    CHECK(texts.send(all) == payload);
    CHECK(texts.send(all) == "2short3");
    CHECK(texts.outbox.empty());
}

TEST_CASE("outbox: who is told is told with the last byte, not before") {
    Texts texts;
    Told told;
    texts.add(nullptr, "12345", "678", &told);
    texts.add(nullptr, "9");
    CHECK(texts.send(7) == "1234567");
    CHECK(told.sents == 0);
    CHECK(texts.send(1) == "8");
    CHECK(told.sents == 1);
    CHECK(texts.send_all() == "9");
    CHECK(told.sents == 1);
}

TEST_CASE("outbox: who is told may add items") {
    for (std::size_t most = 1; most != 20; ++most) {
        Texts texts;
        Told told;
        int left = 50;
        told.on_sent = [&] {
            if (--left != 0) texts.add(&told, std::to_string(left) + " ", "and ", &told);
        };
        texts.add(&told, "50 ", "and ", &told);
        texts.add(nullptr, "other ");
        std::string expected = "50 and other ";
        for (int i = 49; i != 0; --i) expected += std::to_string(i) + " and ";
        CHECK(texts.send_all(most) == expected);
    }
}

// What has gone is forgotten, even where there is always more to send.
TEST_CASE("outbox: never empty, for long") {
    for (const std::size_t most : {1U, 7U, 30U, 100U, 1000U}) {
        Texts texts;
        std::string expected;
        std::string text;
        for (int i = 0; i != 5000; ++i) {
            const std::string each = std::to_string(i) + ";";
            texts.add(nullptr, each);
            expected += each;
            if (texts.outbox.size() > 300 || i % 3 == 0) text += texts.send(most, 700);
        }
        while (!texts.outbox.nothing_to_send()) text += texts.send(1000);
        CHECK(text == expected);
    }
}

TEST_CASE("outbox: what others add waits behind the holder, in order") {
    Texts texts;
    Told holder;
    Told other;
    texts.add(nullptr, "before ");
    CHECK(texts.outbox.hold(holder));
    CHECK(texts.outbox.hold(holder));
    texts.add(nullptr, "A ");
    texts.add(&holder, "1 ");
    texts.add(&other, "B ", "b ", &other);
    CHECK(texts.send_all() == "before 1 ");
    CHECK_FALSE(texts.outbox.empty());
    CHECK(texts.outbox.size() == 2);
    texts.add(&holder, "2 ");
    texts.outbox.let_go(other);
    CHECK(texts.send_all() == "2 ");
    CHECK(other.sents == 0);
    texts.outbox.let_go(holder);
    CHECK(texts.send_all() == "A B b ");
    CHECK(other.sents == 1);
    CHECK(texts.outbox.empty());
}

TEST_CASE("outbox: those who were refused are resumed in order, until one holds again") {
    Texts texts;
    Told holder;
    Told refused[4];
    CHECK(texts.outbox.hold(holder));
    for (int i = 0; i != 4; ++i) {
        refused[i].on_resume = [&texts, &refused, i] {
            texts.add(&refused[i], std::to_string(i) + " ");
            if (i == 1) CHECK(texts.outbox.hold(refused[i]));
        };
        CHECK_FALSE(texts.outbox.hold(refused[i]));
        CHECK_FALSE(texts.outbox.hold(refused[i]));  // asks again
    }
    texts.add(nullptr, "behind ");
    // It has found another way to answer: nothing touches it any more.
    texts.outbox.let_go(refused[2]);
    texts.outbox.let_go(holder);
    CHECK(texts.send_all() == "behind 0 1 ");
    CHECK(refused[3].resumes == 0);
    texts.outbox.let_go(refused[1]);
    CHECK(texts.send_all() == "3 ");
    CHECK(refused[0].resumes == 1);
    CHECK(refused[1].resumes == 1);
    CHECK(refused[2].resumes == 0);
    CHECK(refused[3].resumes == 1);
}

TEST_CASE("outbox: one that may not hold yet is resumed whenever somebody has answered") {
    Texts texts;
    Told waits;
    Told other;
    bool allowed = false;
    waits.on_resume = [&] {
        if (texts.outbox.hold(waits, allowed)) texts.add(&waits, "held ");
    };
    CHECK_FALSE(texts.outbox.hold(waits, false));
    texts.add(&other, "other ");  // nobody holds
    texts.outbox.let_go(other);
    CHECK(waits.resumes == 1);
    CHECK(texts.send_all() == "other ");
    allowed = true;
    texts.outbox.let_go(other);
    CHECK(waits.resumes == 2);
    texts.add(&other, "behind ");
    CHECK(texts.send_all() == "held ");
    texts.outbox.let_go(waits);
    CHECK(waits.resumes == 2);
    CHECK(texts.send_all() == "behind ");
}

TEST_CASE("outbox: one that is resumed and lets go at once lets the next one come") {
    Texts texts;
    Told holder;
    Told refused[3];
    CHECK(texts.outbox.hold(holder));
    for (Told& each : refused) {
        each.on_resume = [&texts, &each] {
            CHECK(texts.outbox.hold(each));
            texts.add(&each, "x");
            texts.outbox.let_go(each);
        };
        CHECK_FALSE(texts.outbox.hold(each));
    }
    texts.outbox.let_go(holder);
    CHECK(texts.send_all() == "xxx");
    for (const Told& each : refused) CHECK(each.resumes == 1);
}

TEST_CASE("outbox: one that is refused again has its turn when another has answered") {
    Texts texts;
    Told holder;
    Told waits;
    Told answers;
    bool allowed = false;
    CHECK(texts.outbox.hold(holder));
    waits.on_resume = [&] {
        if (!texts.outbox.hold(waits, allowed)) return;
        texts.add(&waits, "second");
        texts.outbox.let_go(waits);
    };
    answers.on_resume = [&] {
        texts.add(&answers, "first ");
        allowed = true;
        texts.outbox.let_go(answers);
    };
    CHECK_FALSE(texts.outbox.hold(waits));
    CHECK_FALSE(texts.outbox.hold(answers));
    texts.outbox.let_go(holder);
    CHECK(waits.resumes == 2);
    CHECK(answers.resumes == 1);
    CHECK(texts.send_all() == "first second");
}

TEST_CASE("outbox: cleared, it tells nobody") {
    Texts texts;
    Told holder;
    Told refused;
    CHECK(texts.outbox.hold(holder));
    CHECK_FALSE(texts.outbox.hold(refused));
    texts.add(&holder, "1234", "5678", &holder);
    texts.add(nullptr, "behind");
    CHECK(texts.send(5) == "12345");
    texts.outbox.clear();
    CHECK(texts.outbox.empty());
    CHECK(texts.outbox.nothing_to_send());
    texts.outbox.let_go(holder);
    texts.add(nullptr, "new");
    CHECK(texts.send_all() == "new");
    CHECK(holder.sents == 0);
    CHECK(refused.resumes == 0);
    CHECK(texts.outbox.hold(refused));
}

}  // namespace
}  // namespace gpunbd::server::test
