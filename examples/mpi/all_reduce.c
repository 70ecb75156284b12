/* Time MPI_Allreduce of several sizes over the fabric's IP, as examples/all_reduce.py does for torch.

    apt-get install openmpi-bin libopenmpi-dev
    mpicc -O2 -o all_reduce examples/mpi/all_reduce.c
    sudo mrc up -d
    sudo mrc exec h0 -- mpirun --allow-run-as-root --mca plm_rsh_agent "mrc ssh" \
        --mca btl tcp,self --mca btl_tcp_if_include fabric0 --mca oob_tcp_if_include fabric0 -H h0,h2 ./all_reduce
*/
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 5, SMALLEST = 4096, LARGEST = 16 << 20 };

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	int rank, ranks;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int largest = argc > 1 ? atoi(argv[1]) : LARGEST;
	for (int size = SMALLEST; size <= largest; size *= 4) {
		int count = size / (int)sizeof(float);
		float *values = malloc(size);
		double times[1 + ROUNDS];
		for (int round = 0; round <= ROUNDS; round++) { /* the first warms up */
			for (int i = 0; i < count; i++)
				values[i] = rank;
			MPI_Barrier(MPI_COMM_WORLD);
			double start = MPI_Wtime();
			MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
			times[round] = MPI_Wtime() - start;
			for (int i = 0; i < count; i++)
				if (values[i] != ranks * (ranks - 1) / 2) {
					fprintf(stderr, "rank %d: a wrong sum of %d bytes\n", rank, size);
					MPI_Abort(MPI_COMM_WORLD, 1);
				}
		}
		qsort(times + 1, ROUNDS, sizeof *times, compare);
		if (rank == 0) {
			printf("all_reduce %d bytes %.6f s\n", size, times[1 + ROUNDS / 2]);
			fflush(stdout);
		}
		free(values);
	}
	MPI_Finalize();
	return 0;
}
