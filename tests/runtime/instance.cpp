// An instance of the model of test_standalone.py in C++17: x f32[n,16], i i64[2] -> y f32[2,4], z f32[n,8].
// argv[1]: the weights.  Prints z of a run with x = 1, then of a submitted run with x = 2.
#include "small.hpp"

#include <cstdio>
#include <iostream>

template <typename Call> static void expect_error(Call call) {
    try {
        call();
    } catch (const small::error &e) {
        std::cout << e.code << ": " << e.what() << "\n";
        return;
    }
    std::cout << "no error\n";
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 1;
    small::model model(argv[1]);
    small::instance instance(model, {3});
    std::vector<float> x(3 * 16, 1.0f);
    std::array<std::int64_t, 2> i{4, 0};
    instance.set_input(0, x);
    expect_error([&] { instance.run(); });
    instance.set_input(1, i);
    instance.run();
    for (float z : instance.output<float>(1))
        std::printf("%.9g ", z);
    std::printf("\n");

    std::vector<float> y(8);
    int rounds = 0, failed = 0;
    instance.set_output(0, y);
    instance.submit([&](std::int32_t code) {
        failed |= code;
        x.assign(x.size(), 2.0f);
        instance.submit([&](std::int32_t last) {
            failed |= last;
            rounds++;
        });
    });
    instance.wait();
    small::instance moved = std::move(instance);
    for (float z : moved.output<float>(1))
        std::printf("%.9g ", z);
    std::printf("\n%d %d %g\n", rounds, failed, y[0]);
    std::fflush(stdout);

    expect_error([&] { moved.set_input(0, std::vector<float>(5)); });
    expect_error([&] { moved.set_input(0, std::vector<double>(24)); });
    expect_error([&] { moved.set_input(2, x); });
    expect_error([&] { (void)moved.output<std::int32_t>(0); });
    expect_error([&] { small::instance none(model); });
    i[1] = 9;
    expect_error([&] { moved.run(); });
    moved.submit();
    expect_error([&] { moved.wait(); });
    expect_error([&] { small::model absent("no such file"); });
}
